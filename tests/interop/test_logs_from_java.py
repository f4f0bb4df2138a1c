"""examples/java/Logs.java: Java reads an ``arrow`` log that Spark wrote, and appends to a ``raw`` one that Spark reads."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from benchmarks.peers.apache import JAVA_OPTIONS
from benchmarks.peers.artifacts import (
    Artifacts,
    Jar,
    PeerUnavailableError,
    cache_directory,
    prepare,
)
from spark_bookkeeper import BookKeeper, LocalCluster
from spark_bookkeeper.demo.session import spark_session
from spark_bookkeeper.log.format import log_pb2
from tests.patience import seconds
from tests.sources import REPOSITORY

pytestmark = [pytest.mark.integration, pytest.mark.full]

BESIDE = [Jar("com.google.protobuf", "protobuf-java", "4.31.1")] + [
    Jar("org.apache.arrow", name, "19.0.0")
    for name in ("arrow-vector", "arrow-memory-unsafe", "arrow-compression")
]


@pytest.fixture(scope="module")
def example() -> Artifacts:
    source = REPOSITORY / "examples" / "java" / "Logs.java"
    try:
        return prepare(cache_directory(), source, BESIDE)
    except PeerUnavailableError as error:
        pytest.skip(f"Apache BookKeeper or Arrow cannot be had: {error}")


@pytest.fixture(scope="module")
def descriptors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What ``protoc --descriptor_set_out`` writes of log.proto."""
    described = FileDescriptorProto()
    log_pb2.DESCRIPTOR.CopyToProto(described)
    path = tmp_path_factory.mktemp("descriptors") / "log.desc"
    path.write_bytes(FileDescriptorSet(file=[described]).SerializeToString())
    return path


def java(example: Artifacts, cluster: LocalCluster, descriptors: Path, *words: str) -> list[str]:
    """Lines of the example's output."""
    servers = f"127.0.0.1:{cluster.zookeeper.port}"
    arguments = (servers, "/ledgers", str(descriptors), "", *words)
    command = example.command("Logs", *arguments, options=JAVA_OPTIONS)
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=seconds(120),
        env=dict(os.environ),
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    return done.stdout.splitlines()


def test_rows_that_spark_wrote_are_read(
    example: Artifacts, ours: LocalCluster, descriptors: Path, tmp_path: Path
) -> None:
    options = {"metadataServiceUri": ours.metadata_service_uri, "log": "orders"}
    with spark_session(tmp_path / "spark", cores=2, is_brief=True) as spark:
        for first in (0, 1_000):
            rows = spark.range(first, first + 1_000, 1, 2).selectExpr(
                "id", "concat('n', id) as name"
            )
            rows.write.format("bookkeeper").options(**options).mode("append").save()
    lines = java(example, ours, descriptors, "read", "orders")
    # Apache's libraries log to the same output.
    rows_read = [line.split("\t") for line in lines if re.fullmatch(r"\d+\tn\d+", line)]
    assert sorted(rows_read, key=lambda row: int(row[0])) == [
        [str(i), f"n{i}"] for i in range(2_000)
    ]


def test_rows_that_java_appends_are_rows_of_the_log(
    example: Artifacts, ours: LocalCluster, bk: BookKeeper, descriptors: Path, tmp_path: Path
) -> None:
    with bk.create_log("payments").writer() as writer:
        writer.append(b"from Python")
    java(example, ours, descriptors, "append", "payments", "one", "two", "three")
    with bk.open_log("payments").writer() as writer:
        writer.append(b"from Python again")
    options = {"metadataServiceUri": ours.metadata_service_uri, "log": "payments"}
    with spark_session(tmp_path / "spark", cores=2, is_brief=True) as spark:
        table = spark.read.format("bookkeeper").options(**options, includeMetadata="true").load()
        found = [(row._position, bytes(row.value)) for row in table.orderBy("_position").collect()]
    expected = [b"from Python", b"one", b"two", b"three", b"from Python again"]
    assert found == list(enumerate(expected))
