"""``bookkeeper logs``: an operator's work on logs, a file for each group of commands."""
