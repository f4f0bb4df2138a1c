"""How a client reaches one bookie; the transport is chosen per bookie (docs/architecture.md)."""
