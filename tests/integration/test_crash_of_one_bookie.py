"""One bookie process ends badly, or its disk lies to it, and what it says afterwards is still true.

The other two bookies stay, so the cluster's answers show whether the third one's are believed.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from bookie_server.client.grpc_client import GrpcBookieClient
from bookie_server.client.settings import ConnectionSettings
from bookie_server.storage.disk.stamps import SECTOR_SIZE
from bookie_server.storage.journal.journal_file import BLOCK_SIZE
from bookie_server.wire.messages import EntryList, ReadReply, ReadRequest, Status
from spark_bookkeeper import BookKeeper, LocalCluster
from spark_bookkeeper.blocking.write_handle import WriteHandle
from spark_bookkeeper.local.bookie import LocalBookie
from tests.integration.processes import eventually

pytestmark = [pytest.mark.integration, pytest.mark.slow]

COUNT = 50


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(bookies=3) as running:
        yield running
        for bookie in running.bookies:
            bookie.kill()  # one that still waits to register would take its time to stop


@pytest.fixture
def bookie(cluster: LocalCluster) -> LocalBookie:
    """The one that ends badly."""
    return cluster.bookies[0]


@pytest.fixture
def writer(bk: BookKeeper, bookie: LocalBookie) -> WriteHandle:
    """Of ``COUNT`` entries that the bookie holds, each in a journal group of its own."""
    writer = bk.create_ledger()
    for number in range(COUNT):
        assert writer.append(b"entry %d" % number) == number
    settle_on(bk, bookie, writer.ledger_id)  # else the next entry may share a group
    return writer


def ask(bk: BookKeeper, bookie: LocalBookie, ledger_id: int) -> tuple[ReadReply, EntryList]:
    """What this one bookie says about entries 0 to 2 * ``COUNT``."""

    async def main() -> tuple[ReadReply, EntryList]:
        client = GrpcBookieClient(bookie.bookie_id, bookie.bookie_id, ConnectionSettings())
        request = ReadRequest(ledger_id=ledger_id, first_entry=0, last_entry=2 * COUNT)
        try:
            return await asyncio.gather(client.read(request), client.list_entries(ledger_id))
        finally:
            await client.close()

    return bk.run(main())


def held(reply: ReadReply) -> list[int]:
    return [entry_id for run in reply.runs for entry_id in run.entry_ids]


def settle_on(bk: BookKeeper, bookie: LocalBookie, ledger_id: int, count: int = COUNT) -> None:
    """Wait until the bookie holds every entry: an acknowledgement needs only two of three."""
    assert eventually(lambda: held(ask(bk, bookie, ledger_id)[0]) == list(range(count)))


def restart(bk: BookKeeper, bookie: LocalBookie, ledger_id: int) -> None:
    """Until it answers: it registers only when its killed predecessor's session has expired."""
    bookie.spawn()
    assert eventually(lambda: bool(held(ask(bk, bookie, ledger_id)[0])), timeout_s=30)


def journal_of(bookie: LocalBookie) -> Path:
    """Its journal file with content."""
    files = [path for path in (bookie.directory / "journal").rglob("*") if path.is_file()]
    return max(files, key=lambda path: len(path.read_bytes().rstrip(b"\0")))


def test_a_second_signal_ends_a_bookie_at_once_and_loses_nothing(
    bookie: LocalBookie, bk: BookKeeper, writer: WriteHandle
) -> None:
    # given a bookie that holds acknowledged entries and meets both signals before it can drain
    pid = bookie.pid
    assert pid is not None
    bookie.pause()
    os.kill(pid, signal.SIGTERM)
    os.kill(pid, signal.SIGINT)

    # when it may run again
    bookie.resume()

    # then it is gone without the farewell of one that drained
    assert eventually(lambda: not bookie.is_running)
    assert "exit code 1" in str(bookie.failure())
    assert "bookie stopped" not in bookie.log_path.read_text(encoding="utf-8")
    restart(bk, bookie, writer.ledger_id)
    assert held(ask(bk, bookie, writer.ledger_id)[0]) == list(range(COUNT))
    writer.close()


def test_a_torn_journal_tail_is_dropped_and_absence_behind_it_is_proof(
    bookie: LocalBookie, bk: BookKeeper, writer: WriteHandle
) -> None:
    # given a bookie whose last group, of several sectors, a crash left half written
    writer.append(b"x" * 3000)
    settle_on(bk, bookie, writer.ledger_id, COUNT + 1)
    bookie.kill()
    journal = journal_of(bookie)
    begin = (len(journal.read_bytes().rstrip(b"\0")) - 1) // BLOCK_SIZE * BLOCK_SIZE
    with journal.open("r+b") as file:
        file.seek(begin + 3 * SECTOR_SIZE)
        file.write(bytes(2 * SECTOR_SIZE))

    # when it starts again
    restart(bk, bookie, writer.ledger_id)

    # then it has what it acknowledged, and knows that it never had more
    reply, entries = ask(bk, bookie, writer.ledger_id)
    assert held(reply) == list(range(COUNT))
    assert {part.status for part in reply.missing} == {Status.NO_ENTRY}
    assert entries.status is Status.OK
    assert "storage damaged" not in bookie.log_path.read_text(encoding="utf-8")
    writer.close()


def test_a_damaged_journal_makes_absence_unknown_and_truncates_nothing(
    bookie: LocalBookie, bk: BookKeeper, writer: WriteHandle
) -> None:
    # given a bookie whose disk lost a byte in the middle of what it had acknowledged
    bookie.kill()
    journal = journal_of(bookie)
    content = bytearray(journal.read_bytes())
    at = content.index(b"entry %d" % (COUNT // 2))
    content[at] ^= 0xFF
    journal.write_bytes(content)

    # when it starts again
    restart(bk, bookie, writer.ledger_id)

    # then what it lacks it does not deny, and an unclosed ledger takes no more adds there
    reply, entries = ask(bk, bookie, writer.ledger_id)
    assert COUNT // 2 not in held(reply)
    assert {part.status for part in reply.missing} == {Status.UNKNOWN}
    assert entries.status is not Status.OK
    assert "limbo after damage" in bookie.log_path.read_text(encoding="utf-8")

    # and a recovery by the other two keeps every acknowledged entry
    with bk.open_ledger(writer.ledger_id, recovery=True) as reader:
        assert reader.last_add_confirmed == COUNT - 1
        payloads = [bytes(entry.payload) for entry in reader.read(0, COUNT - 1)]
    assert payloads == [b"entry %d" % number for number in range(COUNT)]
