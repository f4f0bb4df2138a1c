"""A bookie: stores entries durably, fences ledgers, answers for what it holds.

Knows nothing of quorums and nothing of Spark. Start reading in :mod:`bookie_server.bookie`.
"""
