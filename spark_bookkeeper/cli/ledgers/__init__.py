"""``bookkeeper ledgers``: an operator's work on ledgers; what ``verify`` finds out has a file of its own."""
