"""A real ZooKeeper, started once, and sessions of the service under test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from bookkeeper_metadata.store.interface import MetadataStore
from spark_bookkeeper.local.zookeeper import ZooKeeperProcess
from tests.conformance.metadata_store import Service


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperProcess]:
    """Shared and never stopped by a test; a test that stops one starts its own."""
    with ZooKeeperProcess(tmp_path_factory.mktemp("zookeeper")) as process:
        yield process


@pytest.fixture
def own_zookeeper(tmp_path: Path) -> Iterator[ZooKeeperProcess]:
    """One that a test may pause and kill."""
    with ZooKeeperProcess(tmp_path) as process:
        yield process


@pytest.fixture
def root(service: Service) -> str:
    return service.root


@pytest.fixture
async def store(service: Service) -> AsyncIterator[MetadataStore]:
    """A session; its folder is there and empty."""
    session = await service.connect()
    await session.create(service.root, b"", make_parents=True)
    yield session
    await session.close()


@pytest.fixture
async def other(service: Service) -> AsyncIterator[MetadataStore]:
    session = await service.connect()
    yield session
    await session.close()


third = other
