"""Commands that run until they are stopped: bookies, auto-recovery, a local cluster, the page of a cluster."""
