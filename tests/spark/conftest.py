"""One Spark and one cluster for all tests that need them; each test writes logs of its own."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import DataFrame, SparkSession

from benchmarks.peers.apache import ApacheCluster
from benchmarks.peers.artifacts import PeerUnavailableError, cache_directory, prepare
from bookkeeper_metadata.environment import METADATA_URI_VARIABLE
from spark_bookkeeper import BookKeeper, LocalCluster
from spark_bookkeeper.demo.session import spark_session
from tests.interop.java_client import SOURCE
from tests.spark.drivers import Driver
from tests.spark.held_source import Hold
from tests.spark.servers import connect_server

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


ON_APACHE = os.environ.get("BOOKKEEPER_TESTS_ON") == "apache"
"""Whether all of this runs on bookies of Apache's, as ``test_on_apache.py`` has a part of it."""


@pytest.fixture(scope="session")
def cluster() -> Iterator[LocalCluster]:
    if not ON_APACHE:
        with LocalCluster(bookies=3) as running:
            yield running
        return
    try:
        artifacts = prepare(cache_directory(), SOURCE)
    except PeerUnavailableError as error:
        pytest.skip(f"Apache BookKeeper cannot be had: {error}")
    with ApacheCluster(artifacts) as apache:
        # It has what these tests use: processes that are killed and started again.
        yield cast(LocalCluster, apache)


@pytest.fixture(scope="session")
def spark_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where Spark keeps its scratch files and its log, ``spark.log``."""
    return tmp_path_factory.mktemp("spark")


@pytest.fixture(scope="session")
def spark(spark_directory: Path) -> Iterator[SparkSession]:
    with spark_session(spark_directory, cores=2, is_brief=True) as session:
        yield session


@pytest.fixture
def bk(cluster: LocalCluster) -> Iterator[BookKeeper]:
    with BookKeeper(cluster.metadata_service_uri) as client:
        yield client


class Logs:
    """Reads and writes of one cluster's logs, of the test's own if no other is named."""

    def __init__(self, spark: SparkSession, uri: str, log: str) -> None:
        self.spark = spark
        self.uri = uri
        self.log = log

    def options(self, log: str | None = None) -> dict[str, str]:
        """What names a log to Spark."""
        return {"log": log or self.log, "metadataServiceUri": self.uri}

    def write(
        self,
        frame: DataFrame | range,
        log: str | None = None,
        *,
        mode: str = "append",
        partitions: int | None = None,
        **options: Any,
    ) -> None:
        """Numbers are written as a column ``id``, in so many partitions."""
        if isinstance(frame, range):
            frame = self.spark.range(frame.start, frame.stop, 1, partitions)
        writer = frame.write.format("bookkeeper").mode(mode)
        writer.options(**self.options(log), **options).save()

    def read(self, log: str | None = None, **options: Any) -> DataFrame:
        reader = self.spark.read.format("bookkeeper")
        return reader.options(**self.options(log), **options).load()

    def read_ledgers(self, ledgers: int | str) -> DataFrame:
        reader = self.spark.read.format("bookkeeper").option("metadataServiceUri", self.uri)
        return reader.option("ledger", ledgers).load()

    def stream(self, log: str | None = None, **options: Any) -> DataFrame:
        reader = self.spark.readStream.format("bookkeeper")
        return reader.options(**self.options(log), **options).load()

    def ids(self, log: str | None = None) -> list[int]:
        return sorted(row.id for row in self.read(log).collect())

    def ledgers(self) -> set[int]:
        """Those of the visible rows."""
        found = self.read(includeMetadata=True).select("_ledger").distinct().collect()
        return {row[0] for row in found}


@pytest.fixture
def logs(spark: SparkSession, cluster: LocalCluster, log: str) -> Logs:
    return Logs(spark, cluster.metadata_service_uri, log)


@pytest.fixture
def log(request: pytest.FixtureRequest) -> str:
    """The names of the test and its module: of a log of its own, in a cluster that all modules share."""
    module = request.node.module.__name__.rpartition(".")[2].removeprefix("test_")
    name = f"{module}-{request.node.name.removeprefix('test_')}"
    return re.sub(r"\W+", "-", name, flags=re.ASCII).strip("-")


@pytest.fixture
def hold(tmp_path: Path) -> Iterator[Hold]:
    """Tasks held in a folder; a test that fails still lets them go."""
    hold = Hold(tmp_path / "hold")
    hold.folder.mkdir()
    yield hold
    hold.release()


@contextmanager
def conf(spark: SparkSession, key: str, value: str) -> Iterator[None]:
    """The session has this setting for the block."""
    before = spark.conf.get(key, None)
    spark.conf.set(key, value)
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(key)
        else:
            spark.conf.set(key, before)


def rows(frame: DataFrame) -> list[str]:
    """Every row as text, in an order of its own: for comparing as multisets."""
    return sorted(map(repr, frame.collect()))


@pytest.fixture(scope="session")
def connected(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """A client of a Spark Connect server: the two share nothing but the connection.

    The server's environment names the cluster, for those who do not.
    """
    directory = tmp_path_factory.mktemp("connect")
    environment = {METADATA_URI_VARIABLE: cluster.metadata_service_uri}
    with (
        connect_server(directory, environment) as remote,
        Driver({"spark.remote": remote}, directory / "client.log") as client,
    ):
        yield client
