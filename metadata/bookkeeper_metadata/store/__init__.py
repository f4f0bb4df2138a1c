"""The compare-and-set store that arbitrates: its interface, in ZooKeeper, and in memory."""
