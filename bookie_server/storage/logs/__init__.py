"""Entry logs: the write cache they are made from, their blocks, and the rows that find an entry."""
