"""A bookie and the free space of its disks: it looks, and starts sealed where there is none."""
