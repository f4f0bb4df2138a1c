"""Spark on our log, on Delta, on Kafka and on a sink that throws everything away, in alternated rounds.

Each side is a Spark of its own in a process of its own (:mod:`benchmarks.spark_peers.side`), since the
peers need another version of it; all are up all the time, and only figures of one round are compared.
"""
