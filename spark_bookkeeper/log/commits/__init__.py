"""How a log changes: epochs are drawn and claimed, writes committed, heads changed."""
