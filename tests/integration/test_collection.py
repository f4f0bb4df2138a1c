"""Space comes back: real bookies delete what the metadata has forgotten, and nothing else, come what may."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.stored import log_bytes
from spark_bookkeeper import BookKeeper, LocalCluster
from spark_bookkeeper.errors import LedgerDeletedError
from tests.integration.command_line import CommandLine
from tests.integration.processes import eventually, start_again
from tests.patience import Deadline

pytestmark = [pytest.mark.integration, pytest.mark.slow]

KIB, MIB = 1024, 1024 * 1024
FAST = {
    "gc_interval_ms": 200,
    "checkpoint_interval_ms": 200,
    "minor_compaction_interval_ms": 200,
    "write_cache_size_bytes": MIB,
    "journal_file_size_bytes": MIB,
    "journal_zero_chunk_bytes": 64 * KIB,
}
PAYLOAD = bytes(range(256)) * 64  # 16 KiB
ENTRIES = 256
LEDGER_BYTES = 3 * ENTRIES * len(PAYLOAD)
"""What one ledger takes of three bookies, and a little less."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(3, bookie_settings=FAST) as running:
        yield running


def written(bk: BookKeeper, entries: int = ENTRIES) -> int:
    """A closed ledger of 4 MiB."""
    with bk.create_ledger() as writer:
        writer.append_many([PAYLOAD] * entries)
        return writer.ledger_id


def is_whole(bk: BookKeeper, ledger_id: int, entries: int = ENTRIES) -> bool:
    with bk.open_ledger(ledger_id) as reader:
        return [bytes(entry.payload) for entry in reader.read(0, entries - 1)] == (
            [PAYLOAD] * entries
        )


def disk_bytes(cluster: LocalCluster) -> int:
    """What all files of all bookies take of the disk, their own logs excepted."""
    found = 0
    for bookie in cluster.bookies:
        for place in ("ledgers", "journal"):
            for path in (bookie.directory / place).iterdir():
                try:
                    found += path.stat().st_blocks * 512
                except FileNotFoundError:
                    continue
    return found


def collections(bookkeeper: CommandLine, cluster: LocalCluster) -> list[int]:
    return [
        bookkeeper.json("cookies", "show", bookie.bookie_id)["collections"]
        for bookie in cluster.bookies
    ]


def test_the_disk_of_deleted_ledgers_is_back_without_a_restart_again_and_again(
    cluster: LocalCluster, bk: BookKeeper
) -> None:
    kept = written(bk)
    assert eventually(lambda: log_bytes(cluster) > LEDGER_BYTES, 60)
    at_rest: list[int] = []
    for _ in range(3):
        dead = [written(bk) for _ in range(5)]
        for ledger_id in dead:
            bk.delete_ledger(ledger_id)
        # One ledger's bytes on three bookies, and what shares a log with it.
        assert eventually(lambda: log_bytes(cluster) < 2 * LEDGER_BYTES, 60)
        at_rest.append(disk_bytes(cluster))
    assert is_whole(bk, kept)
    # Journals are trimmed behind checkpoints: each has a file or two, of a MiB.
    assert max(at_rest) < 2 * LEDGER_BYTES + 3 * 4 * MIB
    bk.delete_ledger(kept)
    assert eventually(lambda: log_bytes(cluster) < LEDGER_BYTES // 8, 60)


def test_of_logs_that_one_ledger_of_many_keeps_the_rest_is_given_back(
    cluster: LocalCluster, bk: BookKeeper
) -> None:
    """Entry logs hold all ledgers of a checkpoint; a bookie is killed while they are rewritten."""
    writers = [bk.create_ledger() for _ in range(16)]
    for _ in range(8):
        for writer in writers:
            writer.append_many([PAYLOAD] * 8)
    for writer in writers:
        writer.close()
    kept, *dead = [writer.ledger_id for writer in writers]
    assert eventually(lambda: log_bytes(cluster) > 3 * LEDGER_BYTES, 60)

    for ledger_id in dead:
        bk.delete_ledger(ledger_id)
    for bookie in cluster.bookies:
        bookie.kill()
        start_again(bookie)

    assert eventually(lambda: log_bytes(cluster) < LEDGER_BYTES, 60)
    assert is_whole(bk, kept, 64)
    bk.delete_ledger(kept)


def test_bookies_killed_while_they_delete_finish_it_and_lose_nothing_else(
    cluster: LocalCluster, bk: BookKeeper
) -> None:
    for victim in cluster.bookies:
        kept, dead = written(bk), written(bk)
        with bk.create_ledger() as growing:
            growing.append_many([PAYLOAD] * 10)
            bk.delete_ledger(dead)
            victim.kill()
            growing.append_many([PAYLOAD] * 10)
            start_again(victim)
        assert is_whole(bk, kept)
        assert is_whole(bk, growing.ledger_id, 20)
        bk.delete_ledger(kept)
        bk.delete_ledger(growing.ledger_id)
    assert eventually(lambda: log_bytes(cluster) < 2 * LEDGER_BYTES, 60)


def test_nothing_that_lives_is_deleted_while_zookeeper_is_away(
    cluster: LocalCluster, bk: BookKeeper
) -> None:
    kept, dead = written(bk), written(bk)
    assert eventually(lambda: log_bytes(cluster) > 2 * LEDGER_BYTES, 60)
    bk.delete_ledger(dead)
    cluster.zookeeper.kill()
    waited = Deadline(2)
    while not waited.has_passed:
        assert log_bytes(cluster) > LEDGER_BYTES
    cluster.zookeeper.start()
    assert is_whole(bk, kept)
    bk.delete_ledger(kept)
    assert eventually(lambda: log_bytes(cluster) < 2 * LEDGER_BYTES, 60)


def test_a_writer_whose_ledger_was_deleted_is_told_and_creates_nothing_anew(
    cluster: LocalCluster, bk: BookKeeper
) -> None:
    writer = bk.create_ledger()
    writer.append_many([PAYLOAD] * 64)
    # Without a fence, which would end it before the bookies have noticed anything.
    bk.delete_ledger(writer.ledger_id, force=True, unfenced=True)
    waited = Deadline(60)
    with pytest.raises(LedgerDeletedError) as told:  # noqa: PT012 - until the bookies have noticed
        while not waited.has_passed:
            writer.append(b"late")
    assert told.value.ledger_id == writer.ledger_id

    with pytest.raises(LedgerDeletedError):
        bk.create_ledger(ledger_id=writer.ledger_id)
    assert writer.ledger_id not in set(bk.list_ledgers())


def test_a_restored_copy_of_the_metadata_deletes_nothing_until_it_is_accepted(
    bookkeeper: CommandLine, tmp_path: Path
) -> None:
    with (
        LocalCluster(3, bookie_settings=FAST) as cluster,
        BookKeeper(cluster.metadata_service_uri) as bk,
    ):
        commands = bookkeeper.at(cluster.metadata_service_uri)
        before = written(bk)
        cluster.zookeeper.stop()
        backup = tmp_path / "backup"
        shutil.copytree(cluster.zookeeper.directory, backup)
        cluster.zookeeper.start()
        since = written(bk)
        counted = collections(commands, cluster)
        assert eventually(
            lambda: all(
                now > then + 3
                for now, then in zip(collections(commands, cluster), counted, strict=True)
            ),
            60,
        )
        cluster.zookeeper.stop()
        shutil.rmtree(cluster.zookeeper.directory)
        shutil.copytree(backup, cluster.zookeeper.directory)
        cluster.zookeeper.start()

        def are_marked() -> bool:
            return all(
                commands.json("cookies", "show", bookie.bookie_id)["is_metadata_older"]
                for bookie in cluster.bookies
            )

        assert eventually(are_marked, 60)
        logs = log_bytes(cluster)
        assert is_whole(bk, before)
        assert since not in list(bk.list_ledgers()), "the copy does not know it"
        waited = Deadline(2)
        while not waited.has_passed:
            assert log_bytes(cluster) >= logs

        for bookie in cluster.bookies:
            commands("cookies", "accept", bookie.bookie_id, "--yes")
        assert eventually(lambda: log_bytes(cluster) < logs, 60)
        assert is_whole(bk, before)
