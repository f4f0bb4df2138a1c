"""Apache BookKeeper's own protocol, versions 2 and 3: its requests and responses, to bytes and back."""
