"""What is taken away again: leftovers of writes, garbage, old rows, whole logs."""
