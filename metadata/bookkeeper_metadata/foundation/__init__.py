"""What every layer stands on: the root of all errors, invariants, and how tasks and resources end."""
