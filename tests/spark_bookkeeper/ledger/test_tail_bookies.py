"""Tailing while bookies lie, hang, lag or are away: one honest one is enough, and nobody misleads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from bookie_server.wire.digest import Crc32cDigest, master_key
from bookie_server.wire.messages import ReadLacReply, Status
from bookie_server.wire.record import encode_lac_packet
from spark_bookkeeper.ledger.errors import EntryUnreadableError
from spark_bookkeeper.ledger.read_handle import ReadHandle
from spark_bookkeeper.ledger.write_handle import WriteHandle
from tests.doubles.cluster import InProcessCluster
from tests.doubles.records import records
from tests.doubles.waits import until
from tests.spark_bookkeeper.ledger.scene import Scene
from tests.spark_bookkeeper.ledger.tails import (
    SLOW_POLLS,
    Follower,
    append,
    damage_reads,
    payload,
    told,
)

pytestmark = SLOW_POLLS

DIGEST = Crc32cDigest()
IMPOSSIBLE = 2**62
PARTS = ("last_entry", "explicit_lac", "records")
"""Of an answer, each with a digest of its own."""


Alter = Callable[[ReadLacReply], ReadLacReply]


def says(status: Status) -> Alter:
    return lambda reply: ReadLacReply(status)


def nothing_new(reply: ReadLacReply) -> ReadLacReply:
    return ReadLacReply(Status.OK)


def damaged(*parts: str) -> Alter:
    """These parts of the answer with a bit flipped, the others as they are."""

    def alter(reply: ReadLacReply) -> ReadLacReply:
        for part in parts:
            if sound := getattr(reply, part):
                reply = replace(reply, **{part: sound[:-1] + bytes([sound[-1] ^ 1])})
        return reply

    alter.__name__ = "-".join(("damaged", *parts))
    return alter


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
    return records([b"forged"], entry_id, ledger_id=ledger_id, lac=lac)


USELESS: list[Alter] = [
    *map(says, (Status.NO_ENTRY, Status.NO_LEDGER, Status.UNKNOWN, Status.BUSY, Status.FENCED)),
    nothing_new,
    damaged(*PARTS),
    *map(damaged, PARTS),
    garbage,
    of_another_ledger,
    an_impossible_lac,
    an_entry_that_confirms_itself,
    more_than_was_asked,
]


@pytest.mark.conformance("D6")
@pytest.mark.parametrize("answer", USELESS)
@pytest.mark.parametrize("quorums", [(3, 3, 2), (4, 2, 2)], ids=str)
@pytest.mark.cluster(bookies=6)
async def test_one_honest_bookie_is_enough_to_follow(
    scene: Scene, reader: ReadHandle, answer: Alter
) -> None:
    scene.cluster.set_faults(*scene.ensemble[1:], alter_lac=answer)
    follower = Follower(reader, 0)
    for entry_id in range(3):
        await append(scene.writer, 1)
        await follower.seen(entry_id)

    assert reader.last_add_confirmed == 2
    await scene.writer.close()
    assert await follower.ended() == [0, 1, 2]
    assert follower.payloads == [payload(entry_id) for entry_id in range(3)]


@pytest.mark.parametrize("answer", USELESS)
async def test_where_no_bookie_is_honest_the_metadata_still_ends_the_tail(
    scene: Scene, reader: ReadHandle, answer: Alter
) -> None:
    scene.cluster.set_faults(alter_lac=answer)
    follower = Follower(reader, 0)
    await append(scene.writer, 3)
    await scene.writer.close()

    assert await follower.ended() == [0, 1, 2]
    assert follower.payloads == [payload(entry_id) for entry_id in range(3)]
    assert reader.last_add_confirmed == 2


@pytest.mark.parametrize(
    "fault",
    [{"hangs": True}, {"drops_writes": True, "alter_lac": nothing_new}],
    ids=["hangs", "is-behind"],
)
async def test_the_bookie_that_is_asked_is_left_when_it_has_no_news(
    scene: Scene, follower: Follower, fault: dict[str, object]
) -> None:
    await until(lambda: any(f.polls_seen for f in scene.cluster.faults.values()))
    asked = next(b for b, f in scene.cluster.faults.items() if f.polls_seen)
    scene.cluster.set_faults(asked, **fault)

    for entry_id in range(3):
        await append(scene.writer, 1)
        await follower.seen(entry_id)
    await scene.writer.close()

    assert await follower.ended() == [0, 1, 2]


@pytest.mark.cluster(explicit_lac_interval_ms=0)
async def test_wrong_packets_at_every_bookie_do_not_hide_what_their_entries_say(
    cluster: InProcessCluster, writer: WriteHandle, reader: ReadHandle
) -> None:
    def poisoned(reply: ReadLacReply) -> ReadLacReply:
        """As a bookie answers a poll that took a packet which nobody can believe."""
        packet = encode_lac_packet(DIGEST, 0, IMPOSSIBLE)
        return replace(reply, last_entry=None, explicit_lac=packet)

    def without_its_proof(reply: ReadLacReply) -> ReadLacReply:
        return poisoned(reply) if reply.records else reply

    cluster.set_faults(alter_lac=without_its_proof)
    await append(writer, 4)

    assert await Follower(reader, 0, timeout=0.3).ended() == [0, 1, 2]
    await writer.close()


async def test_a_lac_that_falls_moves_no_reader(scene: Scene, reader: ReadHandle) -> None:
    await append(scene.writer, 5)
    await told(scene.cluster, 4)
    assert await reader.read_last_add_confirmed() == 4
    old = ReadLacReply(Status.OK, forged(ledger_id=0, entry_id=1, lac=0))
    scene.cluster.set_faults(alter_lac=lambda reply: old)

    assert await reader.read_last_add_confirmed() == 4
    assert await Follower(reader, 0, timeout=0.2).ended() == [0, 1, 2, 3, 4]


@pytest.mark.slow
async def test_a_tail_waits_for_replicas_that_are_away_for_a_moment(
    cluster: InProcessCluster, writer: WriteHandle, reader: ReadHandle
) -> None:
    await append(writer, 3)
    await told(cluster, 2)
    assert await reader.read_last_add_confirmed() == 2
    cluster.set_faults(is_dead=True)
    follower = Follower(reader, 0)
    await until(lambda: any(faults.reads_seen for faults in cluster.faults.values()))

    cluster.set_faults(is_dead=False)
    await follower.seen(2)
    cluster.set_faults(is_dead=True)

    with pytest.raises(EntryUnreadableError):
        await Follower(reader, 0, timeout=0.1).ended()
    follower.task.cancel()
    await asyncio.gather(follower.task, return_exceptions=True)
    cluster.set_faults(is_dead=False)


@pytest.mark.slow
async def test_a_tail_waits_for_a_sound_replica_beside_a_damaged_one(
    cluster: InProcessCluster, writer: WriteHandle, reader: ReadHandle
) -> None:
    """One that answered with garbage, and the others away for a moment, ended it at once."""
    await append(writer, 3)
    await told(cluster, 2)
    assert await reader.read_last_add_confirmed() == 2
    cluster.set_faults(is_dead=True)
    bad = cluster.faults[writer.metadata.last_fragment.ensemble[0]]
    bad.is_dead, bad.alter_read = False, damage_reads
    follower = Follower(reader, 0)
    await until(lambda: bool(bad.reads_seen) or follower.task.done())

    cluster.set_faults(is_dead=False)
    await follower.seen(2)

    follower.task.cancel()
    await asyncio.gather(follower.task, return_exceptions=True)


@pytest.mark.slow
@pytest.mark.cluster(explicit_lac_interval_ms=0)
async def test_a_packet_that_is_true_but_ahead_of_its_bookie_is_checked_and_believed(
    cluster: InProcessCluster, writer: WriteHandle, reader: ReadHandle
) -> None:
    ensemble = writer.metadata.last_fragment.ensemble
    cluster.faults[ensemble[0]].drops_writes = True
    await append(writer, 3)
    packet = encode_lac_packet(DIGEST, 0, 2)
    await cluster.bookies[ensemble[0]].write_lac(0, master_key(b""), packet)
    cluster.set_faults(*ensemble[1:], alter_lac=nothing_new)

    assert await Follower(reader, 0, timeout=0.5).ended() == [0, 1, 2]
    polled = cluster.faults[ensemble[0]].polls_seen
    assert 2 in [poll.previous_lac for poll in polled]
