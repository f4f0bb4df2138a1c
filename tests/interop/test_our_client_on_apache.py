"""Our client, and Spark through it, on bookies of Apache's: what one writes the other reads, fences and recovers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.peers.apache import ApacheCluster
from spark_bookkeeper import BookKeeper
from spark_bookkeeper.demo.session import spark_session
from spark_bookkeeper.errors import LedgerFencedError
from spark_bookkeeper.settings import ClientSettings
from tests.interop.conftest import MakeJavaClient
from tests.interop.java_client import FENCED, payload, sha1_of

pytestmark = [pytest.mark.integration, pytest.mark.full]

SIZES = (0, 1, 100, 3, 70_000, 200_000, 5) + (64,) * 93
LAST = len(SIZES) - 1
PAYLOADS = [payload(entry_id, size) for entry_id, size in enumerate(SIZES)]
DIGESTS = {"CRC32C": "CRC32C", "CRC32": "CRC32", "HMAC": "MAC", "DUMMY": "DUMMY"}
"""Ours, and Java's name of each."""


@pytest.fixture(params=["auto", "v2", "v3"])
def ours(request: pytest.FixtureRequest, apache: ApacheCluster) -> Iterator[BookKeeper]:
    """Our client of Apache's bookies."""
    settings = ClientSettings(bookie_protocol=request.param)
    with BookKeeper(apache.metadata_service_uri, settings=settings) as client:
        yield client


@pytest.mark.parametrize("digest", DIGESTS)
@pytest.mark.parametrize("quorums", [(3, 3, 2), (3, 2, 2)], ids=str)
def test_what_we_write_both_read(
    ours: BookKeeper,
    apache: ApacheCluster,
    java: MakeJavaClient,
    digest: str,
    quorums: tuple[int, int, int],
) -> None:
    ensemble_size, write_quorum, ack_quorum = quorums
    writer = ours.create_ledger(
        ensemble_size=ensemble_size,
        write_quorum=write_quorum,
        ack_quorum=ack_quorum,
        digest_type=digest,
        password=b"secret",
    )
    writer.append_many(PAYLOADS)
    writer.close()
    client = java(apache.metadata_service_uri, "v2")
    assert client.read(writer.ledger_id, DIGESTS[digest], LAST) == sha1_of(SIZES)
    reader = ours.open_ledger(writer.ledger_id, password=b"secret")
    assert [bytes(entry.payload) for entry in reader.read(0, LAST)] == PAYLOADS


def test_what_java_writes_we_read(
    ours: BookKeeper, apache: ApacheCluster, java: MakeJavaClient
) -> None:
    client = java(apache.metadata_service_uri, "v3")
    ledger_id = client.write_ledger("CRC32C", (3, 2, 2), SIZES)
    reader = ours.open_ledger(ledger_id, password=b"secret")
    assert [bytes(entry.payload) for entry in reader.read(0, LAST)] == PAYLOADS


def test_recoveries_end_each_others_writers(
    ours: BookKeeper, apache: ApacheCluster, java: MakeJavaClient
) -> None:
    client = java(apache.metadata_service_uri, "v2")
    ledger_id = int(client.do("create", 3, 3, 2, "CRC32C", "secret")["ledger"])
    client.do("append", 50, 100)
    assert ours.open_ledger(ledger_id, password=b"secret", recovery=True).last_add_confirmed == 49
    assert client.do("append", 1, 100) == {"code": FENCED}

    writer = ours.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2, password=b"secret")
    writer.append_many(PAYLOADS)
    opened = client.do("open", writer.ledger_id, "CRC32C", "secret", "true")
    assert opened == {"last": LAST, "length": sum(SIZES)}
    with pytest.raises(LedgerFencedError):
        writer.append(b"late")


def test_our_own_recovery_ends_our_own_writer(ours: BookKeeper) -> None:
    """Fences, recovery's reads and adds, and the evidence that there is nothing more: all from Apache's bookies."""
    writer = ours.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2, password=b"secret")
    writer.append_many(PAYLOADS)
    reader = ours.open_ledger(writer.ledger_id, password=b"secret", recovery=True)
    assert reader.last_add_confirmed == LAST
    assert [bytes(entry.payload) for entry in reader.read(0, LAST)] == PAYLOADS
    with pytest.raises(LedgerFencedError):
        writer.append(b"late")


def test_a_tail_follows_a_writer(ours: BookKeeper) -> None:
    writer = ours.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2)
    tail = ours.open_ledger(writer.ledger_id).tail(0, timeout=60)
    for entry_id in range(5):
        writer.append(payload(entry_id, 10))
        assert bytes(next(tail).payload) == payload(entry_id, 10)
    writer.close()


def test_spark_writes_and_reads_tables_and_streams(
    apache: ApacheCluster, artifacts: object, tmp_path: Path
) -> None:
    options = {"metadataServiceUri": apache.metadata_service_uri}
    with spark_session(tmp_path / "spark", cores=2, is_brief=True) as spark:
        rows = spark.range(0, 20_000, 1, 3).selectExpr("id", "concat('name-', id) as name")
        orders = {**options, "log": "orders"}
        rows.write.format("bookkeeper").options(**orders).mode("append").save()
        read = spark.read.format("bookkeeper").options(**orders).load()
        assert (read.count(), read.exceptAll(rows).count()) == (20_000, 0)

        copy = {**options, "log": "copy"}
        source = spark.readStream.format("bookkeeper").options(**orders, startingOffsets="earliest")
        query = (
            source.load()
            .writeStream.format("bookkeeper")
            .options(**copy, checkpointLocation=str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        copied = spark.read.format("bookkeeper").options(**copy).load()
        assert (copied.count(), copied.exceptAll(rows).count()) == (20_000, 0)
