"""A cluster in this process, a client of it and that client's writer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from spark_bookkeeper.ledger.client import LedgerClient
from spark_bookkeeper.ledger.read_handle import ReadHandle
from spark_bookkeeper.ledger.write_handle import WriteHandle
from tests.doubles.cluster import InProcessCluster, running_cluster
from tests.spark_bookkeeper.ledger.scene import Scene
from tests.spark_bookkeeper.ledger.tails import Follower


@pytest.fixture
async def cluster(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[InProcessCluster]:
    """Three bookies, or as the marks ``cluster`` say, of which the nearest counts most."""
    settings: dict[str, int] = {}
    for mark in request.node.iter_markers("cluster"):
        settings = mark.kwargs | settings
    async with running_cluster(tmp_path, **settings) as cluster:
        yield cluster


@pytest.fixture
def client(cluster: InProcessCluster) -> LedgerClient:
    return cluster.client()


@pytest.fixture
def quorums() -> tuple[int, int, int]:
    """E, WQ and AQ of the writer's ledger, where a test has no others as its parameter."""
    return 3, 3, 2


@pytest.fixture
async def writer(client: LedgerClient, quorums: tuple[int, int, int]) -> WriteHandle:
    """Of a new ledger."""
    e, w, a = quorums
    return await client.create_ledger(ensemble_size=e, write_quorum=w, ack_quorum=a)


@pytest.fixture
def scene(cluster: InProcessCluster, client: LedgerClient, writer: WriteHandle) -> Scene:
    return Scene(cluster, client, writer)


@pytest.fixture
async def reader(cluster: InProcessCluster, writer: WriteHandle) -> ReadHandle:
    """Of another client, opened before anything was written."""
    return await cluster.client(2).open_ledger(writer.ledger_id)


@pytest.fixture
async def follower(reader: ReadHandle) -> Follower:
    """That reader, tailing in the background."""
    return Follower(reader, 0)
