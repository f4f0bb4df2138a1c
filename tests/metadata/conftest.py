"""A real ZooKeeper for the tests of this folder, started once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spark_bookkeeper.local.zookeeper import ZooKeeperProcess


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperProcess]:
    """Shared and never stopped by a test; a test that stops one starts its own."""
    with ZooKeeperProcess(tmp_path_factory.mktemp("zookeeper")) as process:
        yield process
