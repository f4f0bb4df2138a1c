"""Writing to logs: plans and commits on the driver, one ledger per task attempt."""
