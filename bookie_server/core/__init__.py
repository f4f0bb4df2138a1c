"""The bookie's decisions: pure state machines, driven by :mod:`bookie_server.bookie`."""
