"""The protocol's decisions, without I/O: no clock, no network, no randomness of their own."""
