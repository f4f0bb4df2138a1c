"""Optimize: a log's small ledgers rewritten into large ones, by this process or as a Spark job."""
