"""The cluster in this process that tests of ledgers have."""

from tests.spark_bookkeeper.ledger.conftest import client, cluster, quorums, scene, writer

__all__ = ["client", "cluster", "quorums", "scene", "writer"]
