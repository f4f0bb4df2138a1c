"""TLS: what a process is told about it, and the contexts made of that."""
