"""Writing to a log outside Spark: one leader, its open ledger, the appends on their way."""
