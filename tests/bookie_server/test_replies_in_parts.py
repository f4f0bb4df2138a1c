"""Replies to reads that are sent in parts, uncopied: only where that keeps no more in memory than is accounted for."""

from __future__ import annotations

from asyncio import Semaphore
from collections.abc import Sequence
from pathlib import Path

from bookie_server.bookie import Bookie
from bookie_server.memory.budget import Room
from bookie_server.memory.slots import SharedPlaces
from bookie_server.serving.reads import ReadLimits, Reads
from bookie_server.wire import codec
from bookie_server.wire.buffer import Buffer, memory_of
from bookie_server.wire.messages import ReadRequest
from bookie_server.wire.stripe import Stripe
from tests.doubles.records import add, section
from tests.doubles.storage import running_bookie

KIB = 1024


async def reply_to(
    bookie: Bookie, request: ReadRequest, *, takes_parts: bool = True
) -> tuple[Sequence[Buffer], int]:
    """The parts of the reply as they are sent, and the room that they have meanwhile."""
    sent: list[tuple[Sequence[Buffer], int]] = []

    async def send(_: int, parts: Sequence[Buffer], room: Room | None) -> None:
        assert room is not None
        sent.append((parts, room.size_bytes))

    limits = ReadLimits(
        Semaphore(), SharedPlaces(1, 0).of_connection(1), lambda: False, takes_parts
    )
    reads = Reads(bookie, "client", limits, send)
    await reads.take(codec.encode_read_request(1, request))
    await reads.finish()
    return sent[0]


def held_bytes(parts: Sequence[Buffer]) -> int:
    return sum(dict(map(memory_of, parts)).values())


def entries_in(parts: Sequence[Buffer]) -> list[int]:
    (run,) = codec.parse_read_reply(b"".join(parts))[1].runs
    return list(run.entry_ids)


async def on_disk(bookie: Bookie) -> None:
    await bookie._checkpoints.stop()
    bookie.storage.checkpoint_now()


async def test_what_was_read_from_the_disk_is_sent_as_it_was_read(tmp_path: Path) -> None:
    async with running_bookie(tmp_path) as bookie:
        await add(bookie, section([bytes(KIB)] * 500))
        await on_disk(bookie)
        request = ReadRequest(ledger_id=7, first_entry=3, last_entry=499)

        parts, room_bytes = await reply_to(bookie, request)
        joined, room_of_joined = await reply_to(bookie, request, takes_parts=False)

    assert [type(part) for part in parts] == [bytes, memoryview]
    assert entries_in(parts) == list(range(3, 500))
    assert len(parts[1]) < held_bytes(parts) == room_bytes
    assert joined == (b"".join(parts),)
    assert room_of_joined == 2 * len(joined[0]), "gRPC sends a copy"


async def test_a_small_part_of_a_cached_frame_is_copied_out_of_it(tmp_path: Path) -> None:
    """A client that takes no replies would keep frames in memory behind the checkpoint that lets go of them."""
    async with running_bookie(tmp_path) as bookie:
        await add(bookie, section([bytes(KIB)] * 500))

        for last, is_copied in ((9, True), (200, True), (400, False)):
            request = ReadRequest(ledger_id=7, first_entry=0, last_entry=last)
            parts, room_bytes = await reply_to(bookie, request)
            assert entries_in(parts) == list(range(last + 1))
            assert (len(parts) == 1) is is_copied
            assert held_bytes(parts) == room_bytes


async def test_what_every_frame_keeps_counts(tmp_path: Path) -> None:
    """Little of a large frame and all of a small one, and the same the other way round."""
    async with running_bookie(tmp_path) as bookie:
        await add(bookie, section([bytes(KIB)] * 500))
        await add(bookie, section([bytes(KIB)] * 20, 500, length_before=500 * KIB))

        for first, is_copied in ((490, True), (100, False)):
            request = ReadRequest(ledger_id=7, first_entry=first, last_entry=519)
            parts, room_bytes = await reply_to(bookie, request)
            assert entries_in(parts) == list(range(first, 520))
            assert (len(parts) == 1) is is_copied
            assert held_bytes(parts) == room_bytes <= 2 * sum(map(len, parts))
            assert is_copied or room_bytes > 520 * KIB


async def test_many_small_parts_are_joined(tmp_path: Path) -> None:
    async with running_bookie(tmp_path) as bookie:
        await add(bookie, section([bytes(KIB)] * 500))
        await on_disk(bookie)

        for width, is_joined in ((2, True), (1, False)):
            stripe = Stripe(width, 1, 0)
            request = ReadRequest(ledger_id=7, first_entry=0, last_entry=499, stripe=stripe)
            parts, room_bytes = await reply_to(bookie, request)
            assert entries_in(parts) == list(range(0, 500, width))
            assert (len(parts) == 1) is is_joined
            assert held_bytes(parts) == room_bytes
