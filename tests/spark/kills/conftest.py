"""One log and one query a test, and a driver that all tests share which kill none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_bookkeeper import BookKeeper, LocalCluster
from tests.spark.drivers import Driver
from tests.spark.kills.gate import Gate
from tests.spark.kills.query import SETTINGS
from tests.spark.kills.scene import Scene


@pytest.fixture
def scene(
    request: pytest.FixtureRequest, cluster: LocalCluster, bk: BookKeeper, tmp_path: Path, log: str
) -> Scene:
    """Its input is files; of a log with the parameter ``log``."""
    is_from_log = getattr(request, "param", "files") == "log"
    return Scene(cluster, bk, tmp_path, log, is_from_log=is_from_log)


@pytest.fixture
def gate(scene: Scene) -> Iterator[Gate]:
    """The way to ZooKeeper of whoever something is to happen to."""
    with scene.gate() as gate:
        yield gate


@pytest.fixture(scope="session")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """A driver that lives on: for everything that kills none."""
    with Driver(SETTINGS, tmp_path_factory.mktemp("kills") / "warm.log") as driver:
        yield driver
