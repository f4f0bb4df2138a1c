"""A whole cluster on this machine: a genuine ZooKeeper and bookies, as processes of their own."""
