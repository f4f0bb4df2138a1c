"""A cluster of three bookies for each file, a client of it, and its command line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_bookkeeper import BookKeeper, LocalCluster
from tests.integration.command_line import CommandLine
from tests.integration.tiny_disk import mounted


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(3) as running:
        yield running


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path / "disk") as place:
        yield place


@pytest.fixture
def bk(cluster: LocalCluster) -> Iterator[BookKeeper]:
    with BookKeeper(cluster.metadata_service_uri) as client:
        yield client


@pytest.fixture
def bookkeeper(
    cluster: LocalCluster, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> CommandLine:
    return CommandLine(cluster.metadata_service_uri, capfd, monkeypatch)
