"""The demonstration: real data through Spark and a local cluster, crashes included, all compared.

It proves the promises on whatever machine it runs on, so it trusts nothing: what was read back is
compared with the source row for row, and a difference makes the whole run fail.
"""
