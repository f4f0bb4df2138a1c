"""Reading logs and ledgers: plans on the driver, record batches out of tasks."""
