"""Apache's Java client writes, reads, fences and recovers ledgers on our bookies, and what it wrote is what ours reads."""

from __future__ import annotations

import pytest

from spark_bookkeeper import BookKeeper, LocalCluster
from spark_bookkeeper.errors import LedgerFencedError
from tests.interop.conftest import MakeJavaClient
from tests.interop.java_client import FENCED, UNAUTHORIZED, payload, sha1_of

pytestmark = [pytest.mark.integration, pytest.mark.full]

SIZES = (0, 1, 100, 3, 70_000, 200_000, 5) + (64,) * 93
versions = pytest.mark.parametrize("version", ["v2", "v3"])
DIGESTS = ("CRC32C", "CRC32", "MAC", "DUMMY")
NAMES = {"MAC": "HMAC"}
"""Of digests, where ours has another."""


@versions
@pytest.mark.parametrize("digest", DIGESTS)
def test_what_java_writes_both_read(
    ours: LocalCluster, bk: BookKeeper, java: MakeJavaClient, version: str, digest: str
) -> None:
    client = java(ours.metadata_service_uri, version)
    ledger_id = client.write_ledger(digest, (3, 2, 2), SIZES)
    last = len(SIZES) - 1
    assert client.read(ledger_id, digest, last) == sha1_of(SIZES)
    reader = bk.open_ledger(ledger_id, password=b"secret")
    assert reader.last_add_confirmed == last
    read = [bytes(entry.payload) for entry in reader.read(0, last)]
    assert read == [payload(entry_id, size) for entry_id, size in enumerate(SIZES)]


@versions
@pytest.mark.parametrize("digest", DIGESTS)
def test_what_we_write_java_reads(
    ours: LocalCluster, bk: BookKeeper, java: MakeJavaClient, version: str, digest: str
) -> None:
    writer = bk.create_ledger(
        ensemble_size=3,
        write_quorum=3,
        ack_quorum=2,
        digest_type=NAMES.get(digest, digest),
        password=b"secret",
    )
    writer.append_many([payload(entry_id, size) for entry_id, size in enumerate(SIZES)])
    writer.close()
    client = java(ours.metadata_service_uri, version)
    last = len(SIZES) - 1
    # Version 3 has no batches.
    for how in ("singly", "batch") if version == "v2" else ("singly",):
        assert client.read(writer.ledger_id, digest, last, how=how) == sha1_of(SIZES)


@versions
def test_our_recovery_ends_javas_writer(
    ours: LocalCluster, bk: BookKeeper, java: MakeJavaClient, version: str
) -> None:
    client = java(ours.metadata_service_uri, version)
    ledger_id = int(client.do("create", 3, 3, 2, "CRC32C", "secret")["ledger"])
    assert client.do("append", 10, 100)["last"] == 9
    reader = bk.open_ledger(ledger_id, password=b"secret", recovery=True)
    assert reader.last_add_confirmed == 9
    assert client.do("append", 1, 100) == {"code": FENCED}


@versions
def test_javas_recovery_ends_our_writer(
    ours: LocalCluster, bk: BookKeeper, java: MakeJavaClient, version: str
) -> None:
    writer = bk.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2, password=b"secret")
    writer.append_many([payload(entry_id, 50) for entry_id in range(300)])
    client = java(ours.metadata_service_uri, version)
    assert client.do("open", writer.ledger_id, "CRC32C", "wrong", "true") == {"code": UNAUTHORIZED}
    opened = client.do("open", writer.ledger_id, "CRC32C", "secret", "true")
    assert opened == {"last": 299, "length": 300 * 50}
    with pytest.raises(LedgerFencedError):
        writer.append(b"late")
    assert client.read(writer.ledger_id, "CRC32C", 299) == sha1_of([50] * 300)


def test_entries_that_java_may_sync_later_are_there_once_it_forces(
    ours: LocalCluster, bk: BookKeeper, java: MakeJavaClient
) -> None:
    client = java(ours.metadata_service_uri, "v3")
    ledger_id = int(client.do("create", 3, 3, 2, "CRC32C", "secret", "deferred")["ledger"])
    assert client.do("append", 20, 100) == {"last": 19, "confirmed": -1}
    assert client.do("force") == {"confirmed": 19}
    client.do("close")
    assert bk.open_ledger(ledger_id, password=b"secret").last_add_confirmed == 19


def test_java_tails_what_we_write_and_the_other_way_round(
    ours: LocalCluster, bk: BookKeeper, java: MakeJavaClient
) -> None:
    """Long polls, and the LAC that a writer at rest sends by itself."""
    writer = bk.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2, password=b"secret")
    client = java(ours.metadata_service_uri, "v3", explicit_lac_ms=10)
    writer.append(b"first")
    tailed = client.do("tail", writer.ledger_id, "CRC32C", "secret", 0, 30_000)
    assert tailed == {"confirmed": 0, "has_entry": 1}
    writer.close()

    ledger_id = int(client.do("create", 3, 3, 2, "CRC32C", "secret")["ledger"])
    tail = bk.open_ledger(ledger_id, password=b"secret").tail(0, timeout=60)
    # One by one: Apache's writer notes as sent whatever is confirmed behind its sending an explicit
    # LAC (ExplicitLacFlushPolicy), so of an entry that is confirmed just then nobody hears for good.
    for entry_id in range(2):
        client.do("append", 1, 10)
        assert bytes(next(tail).payload) == payload(entry_id, 10)
    client.do("close")


def test_a_ledger_that_java_deletes_is_gone(
    ours: LocalCluster, bk: BookKeeper, java: MakeJavaClient
) -> None:
    client = java(ours.metadata_service_uri, "v2")
    ledger_id = client.write_ledger("CRC32C", (3, 3, 2), (10, 20))
    assert client.do("delete", ledger_id) == {}
    assert ledger_id not in set(bk.list_ledgers())
