"""Named logs: chains of ledgers changed only by guarded multis, with exactly-once commit."""
