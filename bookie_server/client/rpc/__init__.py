"""A client of Apache's bookies, and of ours at their rpc_port."""
