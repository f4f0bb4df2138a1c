"""Garbage collection: ledgers whose metadata is gone are deleted from a bookie's disks."""
