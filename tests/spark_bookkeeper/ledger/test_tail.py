"""Tailing: every confirmed entry once, in order, to the ledger's end, whatever bookies say or do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from bookie_server.bookie import Bookie
from bookie_server.wire.digest import Crc32cDigest, master_key
from bookie_server.wire.messages import LongPoll, ReadLacReply, Status
from bookie_server.wire.record import encode_lac_packet, encode_records
from bookkeeper_metadata.errors import NoSuchLedgerError
from bookkeeper_metadata.ledgers import LedgerStore
from bookkeeper_metadata.store.memory import Fault
from spark_bookkeeper.ledger.errors import EntryUnreadableError, NoSuchEntryError
from spark_bookkeeper.ledger.read_handle import ReadHandle
from spark_bookkeeper.ledger.write_handle import WriteHandle
from tests.patience import seconds
from tests.spark_bookkeeper.ledger.harness import TestCluster, running_cluster

QUORUMS = [(3, 3, 2), (5, 3, 2), (4, 2, 2)]
DIGEST = Crc32cDigest()
IMPOSSIBLE = 2**62


async def until(claim: Callable[[], bool]) -> None:
    async with asyncio.timeout(seconds(10)):
        while not claim():  # noqa: ASYNC110 - what is claimed has no event
            await asyncio.sleep(0.001)


class Follower:
    """A tail in the background, and what it has seen."""

    def __init__(self, reader: ReadHandle, first: int, timeout: float | None = None) -> None:
        self.reader = reader
        self.ids: list[int] = []
        self.payloads: list[bytes] = []
        self.task = asyncio.create_task(self._follow(first, timeout))

    async def _follow(self, first: int, timeout: float | None) -> None:
        async for entry in self.reader.tail(first, timeout=timeout):
            assert entry.entry_id <= self.reader.last_add_confirmed
            self.ids.append(entry.entry_id)
            self.payloads.append(bytes(entry.payload))

    async def seen(self, last_entry: int) -> None:
        await until(lambda: self.task.done() or bool(self.ids and self.ids[-1] >= last_entry))
        if self.task.done():
            await self.task

    async def ended(self) -> list[int]:
        async with asyncio.timeout(seconds(10)):
            await self.task
        return self.ids


@asynccontextmanager
async def scene(
    place: Path, quorums: tuple[int, int, int] = (3, 3, 2), **settings: int
) -> AsyncIterator[tuple[TestCluster, WriteHandle, ReadHandle]]:
    """A ledger with a writer, and a reader of another client."""
    settings = {"long_poll_timeout_ms": 100, "explicit_lac_interval_ms": 1} | settings
    async with running_cluster(place, bookies=quorums[0] + 1, **settings) as cluster:
        ensemble_size, write_quorum, ack_quorum = quorums
        writer = await cluster.client().create_ledger(
            ensemble_size=ensemble_size, write_quorum=write_quorum, ack_quorum=ack_quorum
        )
        yield cluster, writer, await cluster.client(2).open_ledger(writer.ledger_id)


async def told(cluster: TestCluster, last_add_confirmed: int) -> None:
    """Every bookie has been told by the resting writer."""

    def knows(bookie: Bookie) -> bool:
        facts = bookie.storage.contents.ledgers.get(0)
        return facts is not None and facts.last_add_confirmed >= last_add_confirmed

    await until(lambda: sum(map(knows, cluster.bookies.values())) >= 3)


def payload(number: int) -> bytes:
    return b"%d" % number * (1 + number % 7)


async def append(writer: WriteHandle, count: int) -> None:
    for _ in range(count):
        await writer.append(payload(writer.last_add_pushed + 1))


@pytest.mark.parametrize("quorums", QUORUMS, ids=str)
async def test_a_tail_sees_each_entry_without_waiting_for_the_next(
    tmp_path: Path, quorums: tuple[int, int, int]
) -> None:
    async with scene(tmp_path, quorums) as (_, writer, reader):
        follower = Follower(reader, 0)

        for entry_id in range(8):
            await append(writer, 1)
            await follower.seen(entry_id)
        await writer.append_many([payload(entry_id) for entry_id in range(8, 30)])
        await follower.seen(29)
        await writer.close()

        assert await follower.ended() == list(range(30))
        assert follower.payloads == [payload(entry_id) for entry_id in range(30)]


@pytest.mark.parametrize("quorums", QUORUMS, ids=str)
async def test_a_tail_goes_on_over_ensemble_changes(
    tmp_path: Path, quorums: tuple[int, int, int]
) -> None:
    async with scene(tmp_path, quorums) as (cluster, writer, reader):
        follower = Follower(reader, 0)
        await append(writer, 5)
        for position in (0, 1, 2):
            away = writer.metadata.last_fragment.ensemble[position % quorums[0]]
            cluster.faults[away].is_dead = True
            await append(writer, 5)
            await until(lambda away=away: away not in writer.metadata.last_fragment.ensemble)  # type: ignore[misc]
            await append(writer, 5)
            await follower.seen(writer.last_add_confirmed - 1)
            cluster.faults[away].is_dead = False
        await writer.close()

        assert await follower.ended() == list(range(35))
        assert len(writer.metadata.fragments) > 2


async def test_a_tail_of_a_closed_ledger_is_a_read_that_ends(tmp_path: Path) -> None:
    async with scene(tmp_path) as (cluster, writer, _):
        await append(writer, 5)
        await writer.close()
        reader = await cluster.client(2).open_ledger(writer.ledger_id)

        assert await Follower(reader, 2).ended() == [2, 3, 4]
        assert await Follower(reader, 5).ended() == []
        with pytest.raises(NoSuchEntryError):
            await anext(reader.tail(-1))


@pytest.mark.slow
async def test_an_idle_tail_ends_after_its_timeout_and_an_active_one_does_not(
    tmp_path: Path,
) -> None:
    async with scene(tmp_path) as (_, writer, reader):
        follower = Follower(reader, 0, timeout=seconds(0.5))
        loop = asyncio.get_running_loop()
        active_until_s = loop.time() + seconds(0.7)
        while loop.time() < active_until_s:
            await append(writer, 1)
            await asyncio.sleep(0.02)

        assert not follower.task.done()
        assert await follower.ended() == list(range(writer.last_add_confirmed + 1))
        assert not reader.is_closed


async def test_a_tail_of_a_ledger_that_is_deleted_says_so(tmp_path: Path) -> None:
    async with scene(tmp_path) as (cluster, writer, reader):
        follower = Follower(reader, 0)
        await append(writer, 2)
        await follower.seen(1)

        await cluster.client(3).delete_ledger(writer.ledger_id, force=True)

        with pytest.raises(NoSuchLedgerError):
            await follower.ended()


async def test_a_tail_ends_where_a_recovery_ends_the_ledger(tmp_path: Path) -> None:
    async with scene(tmp_path) as (cluster, writer, reader):
        follower = Follower(reader, 0)
        await append(writer, 6)

        recovered = await cluster.client(3).open_ledger(writer.ledger_id, recovery=True)

        assert await follower.ended() == list(range(recovered.last_add_confirmed + 1))
        assert reader.last_add_confirmed == 5


@pytest.mark.slow
async def test_what_no_ack_quorum_holds_is_not_tailed(tmp_path: Path) -> None:
    async with scene(tmp_path) as (cluster, writer, reader):
        await append(writer, 3)
        for bookie_id in writer.metadata.last_fragment.ensemble[1:]:
            cluster.faults[bookie_id].drops_writes = True
        lost = writer.append_async(b"held by one bookie")
        holder = cluster.bookies[writer.metadata.last_fragment.ensemble[0]]
        await until(lambda: holder.storage.contents.last_entry(writer.ledger_id) == 3)

        assert await Follower(reader, 0, timeout=seconds(0.3)).ended() == [0, 1, 2]
        assert [e.entry_id async for e in reader.read_unconfirmed(3, 3)] == [3]
        writer.abandon(NoSuchLedgerError(0))
        await asyncio.gather(lost, return_exceptions=True)


async def test_an_iteration_that_is_left_leaves_nothing_behind(tmp_path: Path) -> None:
    async with scene(tmp_path, explicit_lac_interval_ms=0) as (cluster, writer, reader):
        await append(writer, 3)
        before = asyncio.all_tasks()
        entries = reader.tail(0)
        assert [(await anext(entries)).entry_id for _ in range(2)] == [0, 1]
        waiting = asyncio.ensure_future(anext(entries))
        watches = [bookie.lac_watch for bookie in cluster.bookies.values()]
        await until(lambda: sum(watch.waiter_count for watch in watches) == 1)

        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await entries.aclose()
        await until(lambda: asyncio.all_tasks() == before)

        assert sum(watch.waiter_count for watch in watches) == 0


# -- metadata that does not help ---------------------------------------------------------------------


async def test_a_tail_goes_on_while_the_metadata_is_away(tmp_path: Path) -> None:
    async with scene(tmp_path, long_poll_timeout_ms=20) as (cluster, writer, reader):
        follower = Follower(reader, 0)
        await append(writer, 1)
        await follower.seen(0)
        lost: list[str] = []

        def lose(operation: str, path: str) -> Fault:
            lost.append(path)
            return Fault.LOST_REQUEST

        cluster.store.fault = lose
        ensemble = writer.metadata.last_fragment.ensemble
        cluster.faults[ensemble[0]].is_dead = True  # and so is a bookie
        await until(lambda: len(lost) > 3)
        await append(writer, 3)
        await follower.seen(3)

        cluster.store.fault = None
        await writer.close()
        assert await follower.ended() == [0, 1, 2, 3]


def test_a_close_that_no_watch_reports_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silent(self: LedgerStore, ledger_id: int, changed: object) -> Callable[[], None]:
        return lambda: None

    async def main() -> None:
        async with scene(tmp_path, long_poll_timeout_ms=20) as (_, writer, reader):
            follower = Follower(reader, 0)
            await append(writer, 2)
            await writer.close()

            assert await follower.ended() == [0, 1]

    monkeypatch.setattr(LedgerStore, "watch", silent)
    asyncio.run(main())


async def test_a_bookie_without_an_address_is_not_looked_up_with_every_question(
    tmp_path: Path,
) -> None:
    async with scene(tmp_path) as (cluster, writer, reader):
        gone = writer.metadata.last_fragment.ensemble[2]
        await cluster.registrations[gone].withdraw()
        reader = await cluster.client(3).open_ledger(writer.ledger_id)
        looked: list[str] = []

        def look(operation: str, path: str) -> None:
            looked.extend([path] * (operation == "children" and "/available" in path))

        follower = Follower(reader, 0)
        await append(writer, 1)
        await follower.seen(0)
        cluster.store.fault = look
        await append(writer, 20)
        await follower.seen(20)

        # Each look lists twice; a busy machine may give cause for a doubt or two.
        assert len(looked) < 10
        await writer.close()
        await follower.ended()


# -- bookies that do not help ------------------------------------------------------------------------


def says(status: Status) -> Callable[[ReadLacReply], ReadLacReply]:
    return lambda reply: ReadLacReply(status)


def nothing_new(reply: ReadLacReply) -> ReadLacReply:
    return ReadLacReply(Status.OK)


def damaged(reply: ReadLacReply) -> ReadLacReply:
    """Every part of the answer with a bit flipped."""
    parts = [
        None if part is None else part[:-1] + bytes([part[-1] ^ 1])
        for part in (reply.last_entry, reply.explicit_lac, reply.records or None)
    ]
    return ReadLacReply(reply.status, parts[0], parts[1], parts[2] or b"")


def garbage(reply: ReadLacReply) -> ReadLacReply:
    return ReadLacReply(Status.OK, b"no record", b"no packet", b"no records at all, but bytes")


def of_another_ledger(reply: ReadLacReply) -> ReadLacReply:
    return ReadLacReply(
        Status.OK,
        forged(ledger_id=99, entry_id=50, lac=49),
        encode_lac_packet(DIGEST, 99, 49),
        forged(ledger_id=99, entry_id=2, lac=1),
    )


def an_impossible_lac(reply: ReadLacReply) -> ReadLacReply:
    return ReadLacReply(Status.OK, None, encode_lac_packet(DIGEST, 0, IMPOSSIBLE), b"")


def an_entry_that_confirms_itself(reply: ReadLacReply) -> ReadLacReply:
    return ReadLacReply(Status.OK, forged(ledger_id=0, entry_id=50, lac=50), None, b"")


def more_than_was_asked(reply: ReadLacReply) -> ReadLacReply:
    """A true answer with an entry in it that lies beyond the LAC it proves."""
    return replace(reply, records=reply.records + forged(ledger_id=0, entry_id=700, lac=1))


def forged(ledger_id: int, entry_id: int, lac: int) -> bytes:
    parts = encode_records(
        DIGEST, ledger_id, entry_id, [b"forged"], last_add_confirmed=lac, length_before=0
    )
    return b"".join(parts)


USELESS: list[Callable[[ReadLacReply], ReadLacReply]] = [
    *map(says, (Status.NO_ENTRY, Status.NO_LEDGER, Status.UNKNOWN, Status.BUSY, Status.FENCED)),
    nothing_new,
    damaged,
    garbage,
    of_another_ledger,
    an_impossible_lac,
    an_entry_that_confirms_itself,
    more_than_was_asked,
]


@pytest.mark.conformance("D6")
@pytest.mark.parametrize("answer", USELESS)
@pytest.mark.parametrize("quorums", [(3, 3, 2), (4, 2, 2)], ids=str)
async def test_one_honest_bookie_is_enough_to_follow(
    tmp_path: Path, quorums: tuple[int, int, int], answer: Callable[[ReadLacReply], ReadLacReply]
) -> None:
    async with scene(tmp_path, quorums) as (c, writer, reader):
        for bookie_id in writer.metadata.last_fragment.ensemble[1:]:
            c.faults[bookie_id].alter_lac = answer
        follower = Follower(reader, 0)
        for entry_id in range(3):
            await append(writer, 1)
            await follower.seen(entry_id)

        assert reader.last_add_confirmed == 2
        await writer.close()
        assert await follower.ended() == [0, 1, 2]


@pytest.mark.parametrize("answer", USELESS)
async def test_where_no_bookie_is_honest_the_metadata_still_ends_the_tail(
    tmp_path: Path, answer: Callable[[ReadLacReply], ReadLacReply]
) -> None:
    async with scene(tmp_path) as (cluster, writer, reader):
        for faults in cluster.faults.values():
            faults.alter_lac = answer
        follower = Follower(reader, 0)
        await append(writer, 3)
        await writer.close()

        assert await follower.ended() == [0, 1, 2]
        assert reader.last_add_confirmed == 2


async def test_a_bookie_that_hangs_is_left_and_one_that_answers_late_is_forgotten(
    tmp_path: Path,
) -> None:
    async with scene(tmp_path) as (cluster, writer, reader):
        ensemble = writer.metadata.last_fragment.ensemble
        follower = Follower(reader, 0)
        await until(lambda: any(f.polls_seen for f in cluster.faults.values()))
        polled = next(b for b in ensemble if cluster.faults[b].polls_seen)
        cluster.faults[polled].hangs = True

        for entry_id in range(3):
            await append(writer, 1)
            await follower.seen(entry_id)
        await writer.close()

        assert await follower.ended() == [0, 1, 2]


async def test_a_bookie_that_is_behind_is_not_listened_to_for_long(tmp_path: Path) -> None:
    async with scene(tmp_path) as (cluster, writer, reader):
        follower = Follower(reader, 0)
        await until(lambda: any(f.polls_seen for f in cluster.faults.values()))
        behind = next(f for f in cluster.faults.values() if f.polls_seen)
        behind.drops_writes = True
        behind.alter_lac = nothing_new

        await append(writer, 3)
        await follower.seen(2)
        await writer.close()

        assert await follower.ended() == [0, 1, 2]


async def test_wrong_packets_at_every_bookie_do_not_hide_what_their_entries_say(
    tmp_path: Path,
) -> None:
    def poisoned(reply: ReadLacReply) -> ReadLacReply:
        """As a bookie answers a poll that took a packet which nobody can believe."""
        packet = encode_lac_packet(DIGEST, 0, IMPOSSIBLE)
        return replace(reply, last_entry=None, explicit_lac=packet)

    def without_its_proof(reply: ReadLacReply) -> ReadLacReply:
        return poisoned(reply) if reply.records else reply

    async with scene(tmp_path, explicit_lac_interval_ms=0) as (cluster, writer, reader):
        for faults in cluster.faults.values():
            faults.alter_lac = without_its_proof
        await append(writer, 4)

        assert await Follower(reader, 0, timeout=seconds(0.3)).ended() == [0, 1, 2]
        await writer.close()


async def test_a_lac_that_falls_moves_no_reader(tmp_path: Path) -> None:
    async with scene(tmp_path) as (cluster, writer, reader):
        await append(writer, 5)
        await told(cluster, 4)
        assert await reader.read_last_add_confirmed() == 4
        old = ReadLacReply(Status.OK, forged(ledger_id=0, entry_id=1, lac=0))
        for faults in cluster.faults.values():
            faults.alter_lac = lambda reply: old

        assert await reader.read_last_add_confirmed() == 4
        assert await Follower(reader, 0, timeout=seconds(0.2)).ended() == [0, 1, 2, 3, 4]


@pytest.mark.slow
async def test_a_tail_waits_for_replicas_that_are_away_for_a_moment(tmp_path: Path) -> None:
    async with scene(tmp_path) as (cluster, writer, reader):
        await append(writer, 3)
        await told(cluster, 2)
        assert await reader.read_last_add_confirmed() == 2
        for faults in cluster.faults.values():
            faults.is_dead = True
        follower = Follower(reader, 0)
        await until(lambda: any(faults.reads_seen for faults in cluster.faults.values()))

        for faults in cluster.faults.values():
            faults.is_dead = False
        await follower.seen(2)
        for faults in cluster.faults.values():
            faults.is_dead = True

        with pytest.raises(EntryUnreadableError):
            await Follower(reader, 0, timeout=seconds(0.1)).ended()
        follower.task.cancel()
        await asyncio.gather(follower.task, return_exceptions=True)
        for faults in cluster.faults.values():
            faults.is_dead = False


@pytest.mark.slow
async def test_a_packet_that_is_true_but_ahead_of_its_bookie_is_checked_and_believed(
    tmp_path: Path,
) -> None:
    async with scene(tmp_path, explicit_lac_interval_ms=0) as (cluster, writer, reader):
        ensemble = writer.metadata.last_fragment.ensemble
        cluster.faults[ensemble[0]].drops_writes = True
        await append(writer, 3)
        packet = encode_lac_packet(DIGEST, 0, 2)
        await cluster.bookies[ensemble[0]].write_lac(0, master_key(b""), packet)
        for bookie_id in ensemble[1:]:
            cluster.faults[bookie_id].alter_lac = nothing_new

        assert await Follower(reader, 0, timeout=seconds(0.5)).ended() == [0, 1, 2]
        polled = cluster.faults[ensemble[0]].polls_seen
        assert LongPoll(previous_lac=2, timeout_ms=100) in polled
