"""Apache BookKeeper beside ours: its jars from Maven, its client, its bookies and tools. Without Maven or a JDK these tests
are skipped, and say so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks.peers.apache import ApacheCluster
from benchmarks.peers.artifacts import (
    Artifacts,
    PeerUnavailableError,
    cache_directory,
    prepare,
)
from bookkeeper_metadata.foundation.tls.settings import TlsFiles
from spark_bookkeeper import BookKeeper, LocalCluster
from tests.interop.java_client import SOURCE, JavaClient, tls_settings

MakeJavaClient = Callable[..., JavaClient]


@pytest.fixture(scope="session")
def artifacts() -> Artifacts:
    try:
        return prepare(cache_directory(), SOURCE)
    except PeerUnavailableError as error:
        pytest.skip(f"Apache BookKeeper cannot be had: {error}")


@pytest.fixture(scope="module")
def ours() -> Iterator[LocalCluster]:
    """Three of our bookies."""
    with LocalCluster(3) as running:
        yield running


@pytest.fixture(scope="module")
def apache(artifacts: Artifacts) -> Iterator[ApacheCluster]:
    """Three of Apache's."""
    with ApacheCluster(artifacts) as running:
        yield running


@pytest.fixture
def bk(ours: LocalCluster) -> Iterator[BookKeeper]:
    """Our client of our bookies."""
    with BookKeeper(ours.metadata_service_uri) as client:
        yield client


@pytest.fixture
def java(artifacts: Artifacts, tmp_path: Path) -> Iterator[MakeJavaClient]:
    """Makes Java clients, which end with the test."""
    made: list[JavaClient] = []

    def make(
        uri: str, version: str, explicit_lac_ms: int = 0, files: TlsFiles | None = None
    ) -> JavaClient:
        log = tmp_path / f"java{len(made)}.log"
        settings = tls_settings(files) if files is not None else {}
        made.append(JavaClient(artifacts, uri, log, version, explicit_lac_ms, settings))
        return made[-1]

    yield make
    for client in made:
        client.stop()
