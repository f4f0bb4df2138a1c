"""The runbooks of the metadata, each in the situation it is for: ZooKeeper away, backed up, lost and restored."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_bookkeeper import BookKeeper, LocalCluster
from tests.integration.operated import (
    PAYLOADS,
    assert_all_can_be_read,
    facts_of,
    states,
    write_ledger,
)
from tests.integration.processes import command, eventually
from tests.integration.runbooks import Walk

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.full]


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    """Whose bookies look for deleted ledgers often."""
    with LocalCluster(3, bookie_settings={"gc_interval_ms": 500}) as running:
        yield running


def test_zookeeper_is_away_and_comes_back_and_no_bookie_is_restarted(
    cluster: LocalCluster, bk: BookKeeper, tmp_path: Path
) -> None:
    uri, before = cluster.metadata_service_uri, write_ledger(bk)
    pids = [bookie.pid for bookie in cluster.bookies]
    writer, reader = bk.create_ledger(), bk.open_ledger(before)
    writer.append_many(PAYLOADS[:50])
    with Walk("ZooKeeper is away", uri, tmp_path) as walk:
        cluster.zookeeper.kill()
        assert "PROBLEM  metadata service: BK_METADATA_UNAVAILABLE" in walk.do("look")
        # A writer goes on in its ledger, and a reader in one that is open.
        writer.append_many(PAYLOADS[50:])
        assert [bytes(entry.payload) for entry in reader.read(0, 99)] == PAYLOADS
        cluster.zookeeper.start()
        walk.do("done")

    assert eventually(lambda: set(states(uri).values()) == {"writable"}, 60)
    writer.close()
    reader.close()
    assert_all_can_be_read(bk, [before, writer.ledger_id, write_ledger(bk)])
    assert [bookie.pid for bookie in cluster.bookies] == pids


@pytest.fixture
def before(bk: BookKeeper) -> list[int]:
    """What the backup knows."""
    return [write_ledger(bk) for _ in range(5)]


@pytest.fixture
def backup(cluster: LocalCluster, before: list[int], tmp_path: Path) -> Path:
    """Made as the runbook says, with the server stopped meanwhile."""
    zookeeper, uri = cluster.zookeeper, cluster.metadata_service_uri
    path = tmp_path / "zookeeper.tgz"
    known = {"ZOOKEEPER": zookeeper.directory, "BACKUP": path}
    assert before
    with Walk("Back up the metadata", uri, tmp_path, **known) as walk:
        zookeeper.stop()
        walk.do("backup")
        zookeeper.start()
        assert "version-2/" in walk.do("done")
    return path


def collections(uri: str, bookie_id: str) -> int:
    counted: int = command(uri, "cookies", "show", bookie_id)["collections"]
    return counted


def test_metadata_that_were_backed_up_are_restored(
    cluster: LocalCluster, before: list[int], backup: Path, tmp_path: Path
) -> None:
    uri, bookies = cluster.metadata_service_uri, cluster.bookies
    with BookKeeper(uri) as bk:
        since = [write_ledger(bk) for _ in range(5)]
        counted = {each.bookie_id: collections(uri, each.bookie_id) for each in bookies}
        # Each bookie's disks are ahead of the backup.
        assert eventually(
            lambda: all(collections(uri, each) > count + 3 for each, count in counted.items()), 60
        )
    known = {"ZOOKEEPER": cluster.zookeeper.directory, "BACKUP": backup}
    with Walk("Restore the metadata", uri, tmp_path, **known) as walk:
        for bookie in bookies:
            bookie.stop()
        cluster.zookeeper.stop()
        walk.do("restore")
        cluster.zookeeper.start()
        found = walk.do("look")
        assert "instance id" in found
        assert all(each.bookie_id in found for each in bookies)
        for bookie in bookies:
            walk.begin("start", **facts_of(bookie))
            walk.do("ready", **facts_of(bookie))
        for bookie in bookies:
            older = walk.do("older", **facts_of(bookie))
            assert re.search(r"is metadata older +True", older)
            assert f"metadata for {bookie.bookie_id}: a restored copy" in older
        highest = walk.do("highest", BOOKIE_LOG=tmp_path / "start.log")
        assert int(highest.partition("=")[2]) >= max(since)
        walk.do("skip", LEDGER_ID_MAX=max(since))
        assert "FAILED" not in walk.do("verify")
        with BookKeeper(uri) as bk:
            assert write_ledger(bk) > max(since)
            assert not set(since) & set(bk.list_ledgers())
            held = {each.bookie_id: ledger_count(uri, each.bookie_id) for each in bookies}
            for bookie in bookies:
                walk.do("accept", BOOKIE=bookie.bookie_id)
            assert "restored copy" not in walk.do("done")
            # Only now is deleted what the backup does not know.
            assert eventually(
                lambda: all(ledger_count(uri, each) < count for each, count in held.items()), 60
            )
            assert_all_can_be_read(bk, before)


def ledger_count(uri: str, bookie_id: str) -> int:
    """How many ledgers the bookie holds."""
    listed = command(uri, "bookies", "list")["bookies"]
    (count,) = (each["ledger_count"] for each in listed if each["bookie_id"] == bookie_id)
    return int(count)
