"""Looks at a machine and at a cluster, and says what is wrong and what to do about it."""
