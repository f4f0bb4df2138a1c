"""One Spark and one cluster for all tests that need them; each test writes logs of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from bookkeeper_metadata.environment import METADATA_URI_VARIABLE
from spark_bookkeeper import BookKeeper, LocalCluster
from spark_bookkeeper.demo.session import spark_session
from tests.spark.connect_server import ConnectServer
from tests.spark.drivers import Driver


@pytest.fixture(scope="session")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(bookies=3) as running:
        yield running


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
    """Reads and writes of one cluster's logs, in few words."""

    def __init__(self, spark: SparkSession, uri: str) -> None:
        self._spark = spark
        self._uri = uri

    def write(self, frame: DataFrame, log: str, *, mode: str = "append", **options: object) -> None:
        writer = frame.write.format("bookkeeper").mode(mode).option("log", log)
        writer = writer.option("metadataServiceUri", self._uri)
        for key, value in options.items():
            writer = writer.option(key, str(value))
        writer.save()

    def read(self, log: str | None = None, **options: object) -> DataFrame:
        reader = self._spark.read.format("bookkeeper").option("metadataServiceUri", self._uri)
        if log is not None:
            reader = reader.option("log", log)
        for key, value in options.items():
            reader = reader.option(key, str(value))
        return reader.load()


@pytest.fixture
def logs(spark: SparkSession, cluster: LocalCluster) -> Logs:
    return Logs(spark, cluster.metadata_service_uri)


def rows(frame: DataFrame) -> list[str]:
    """Every row as text, in an order of its own: for comparing as multisets."""
    return sorted(map(repr, frame.collect()))


@pytest.fixture
def parquet(tmp_path: Path, spark: SparkSession):  # type: ignore[no-untyped-def]
    """What Spark itself makes of the same rows: written to Parquet and read back."""

    def through(frame: DataFrame) -> DataFrame:
        frame.write.parquet(str(tmp_path / "twin"))
        return spark.read.parquet(str(tmp_path / "twin"))

    return through


@pytest.fixture(scope="session")
def connected(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """A client of a Spark Connect server: the two share nothing but the connection.

    The server's environment names the cluster, for those who do not.
    """
    directory = tmp_path_factory.mktemp("connect")
    environment = {METADATA_URI_VARIABLE: cluster.metadata_service_uri}
    with (
        ConnectServer(directory, environment) as server,
        Driver({"remote": server.remote}, directory / "client.log", {}) as client,
    ):
        yield client
