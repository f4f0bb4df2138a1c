"""Reading a log: which ranges hold which rows, and the rows themselves in order."""
