"""A bookie for Apache's clients: their protocol, versions 2 and 3, over the same connections as ours."""
