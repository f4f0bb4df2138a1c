"""Apache BookKeeper and spark-bookkeeper on the same machine in the same minutes, in alternated rounds.

Both clusters are up all the time, each side's client is a process of its own that takes commands line by
line (:mod:`benchmarks.peers.commands`), and only ratios of the same round count.
"""
