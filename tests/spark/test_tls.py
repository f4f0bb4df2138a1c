"""Spark on a cluster behind TLS: tables and streams with paths of files as options, and a file that is missing where a task runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_bookkeeper import LocalCluster
from tests.doubles.certificates import Authority, settings_of
from tests.spark.conftest import Logs

pytestmark = [pytest.mark.spark, pytest.mark.integration]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def secured(authority: Authority) -> Iterator[LocalCluster]:
    with LocalCluster(3, bookie_settings=settings_of(authority.files("bookie"))) as running:
        yield running


def options_of(authority: Authority) -> dict[str, str]:
    files = authority.files("task")
    return {
        "bookkeeper.client.tlsTrustPath": files.trust_path,
        "bookkeeper.client.tlsCertificatePath": files.certificate_path,
        "bookkeeper.client.tlsKeyPath": files.key_path,
    }


def test_tables_and_streams_go_over_tls(
    spark: SparkSession, secured: LocalCluster, authority: Authority, tmp_path: Path, log: str
) -> None:
    logs, options = Logs(spark, secured.metadata_service_uri, log), options_of(authority)
    logs.write(range(1_000), partitions=3, **options)
    assert sorted(row.id for row in logs.read(**options).collect()) == list(range(1_000))

    copy = f"{log}-copy"
    query = (
        logs.stream(startingOffsets="earliest", **options)
        .writeStream.format("bookkeeper")
        .options(**logs.options(copy), **options)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert logs.read(copy, **options).count() == 1_000


@pytest.mark.parametrize("how", ["none", "a path that is not there", "no certificate"])
def test_what_is_lacking_is_told_and_nothing_is_left(
    how: str, spark: SparkSession, secured: LocalCluster, authority: Authority, log: str
) -> None:
    logs, options = Logs(spark, secured.metadata_service_uri, log), options_of(authority)
    if how == "none":
        given, name = {}, "BK_TLS_NEEDED"
    elif how == "no certificate":
        given = {"bookkeeper.client.tlsTrustPath": options["bookkeeper.client.tlsTrustPath"]}
        given["bookkeeper.client.bookieWaitTimeoutMs"] = "0"
        given["bookkeeper.client.addTimeoutMs"] = "1000"
        name = "BK_"
    else:
        given = {**options, "bookkeeper.client.tlsKeyPath": "/no/such/key"}
        name = "BK_TLS_FILES.*/no/such/key"
    with pytest.raises(Exception, match=f"(?s){name}"):
        logs.write(range(10), partitions=1, **given)
    logs.write(range(10), partitions=1, **options)
    assert logs.read(**options).count() == 10
