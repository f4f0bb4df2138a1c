"""Options: Spark's strings to frozen dataclasses, by one table that also makes the documentation."""
