"""What fetches entries - reads, and comparisons with what is stored - keeps to the budget, and waits in turn."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bookie_server.bookie import Bookie
from bookie_server.reads import comparisons, duplicates
from bookie_server.wire.messages import ReadRequest, Status
from bookie_server.wire.record import parse_run
from tests.doubles.records import add, section
from tests.doubles.storage import running_bookie
from tests.doubles.waits import pass_turns, until
from tests.patience import seconds

pytestmark = pytest.mark.slow

KIB, MIB = 1024, 1024 * 1024


async def test_a_duplicate_is_compared_in_pieces_that_have_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that was stored under its ids was read at once, and accounted nowhere."""
    monkeypatch.setattr(duplicates, "COMPARE_SIZE_BYTES", 10_000)
    async with running_bookie(tmp_path) as bookie:
        budget, most = bookie._comparisons.memory, 0
        change = budget.change

        def watch(client: str, by_bytes: int) -> None:
            nonlocal most
            change(client, by_bytes)
            most = max(most, budget.used_bytes)

        monkeypatch.setattr(budget, "change", watch)
        payloads = [bytes([number]) * 6_000 for number in range(20)]
        for number, payload in enumerate(payloads):
            await add(bookie, section([payload], number, length_before=6_000 * number))

        assert await add(bookie, section(payloads)) is Status.OK
        changed = [*payloads[:-1], b"\xff" * 6_000]
        assert await add(bookie, section(changed)) is Status.CONFLICT

        assert 6_000 <= most < 40_000
        assert budget.used_bytes == 0


async def test_reads_whose_entries_go_to_the_disk_meanwhile_wait_for_the_room_it_takes(
    tmp_path: Path,
) -> None:
    """They were granted what they took in memory, 22,000 at once, and then took 17 GB by their own account."""
    reads = 200
    async with running_bookie(tmp_path, reads_in_progress_bytes_max=8 * MIB) as bookie:
        budget = bookie.reads_in_progress
        granted: list[int] = []
        await add(bookie, section([bytes(500)] * 1_000))
        with budget.room("somebody else") as held:
            await held.take(8 * MIB)
            asked = [
                asyncio.create_task(read_into_room(bookie, number, granted))
                for number in range(reads)
            ]
            await until(lambda: budget.waiting_count == reads)
            # What a checkpoint does; 64 KiB have to be read then where 500 bytes were wanted.
            await bookie._checkpoints.stop()
            await asyncio.to_thread(bookie.storage.checkpoint_now)
        await asyncio.gather(*asked)

        assert sum(size > 64 * 1024 for size in granted) == reads
        assert budget.used_bytes == 0


@pytest.mark.parametrize("is_compared", [False, True])
async def test_what_waits_for_room_holds_nothing_that_a_checkpoint_lets_go_of(
    tmp_path: Path, is_compared: bool
) -> None:
    """Plans were kept meanwhile, and with them the cached frames in which they found what they wanted."""
    frames = 0

    class WatchedBytes(bytes):
        """These are counted as long as anybody holds them."""

        def __del__(self) -> None:
            nonlocal frames
            frames -= 1

    async with running_bookie(tmp_path, reads_in_progress_bytes_max=8 * MIB) as bookie:
        budget = bookie._comparisons.memory if is_compared else bookie.reads_in_progress
        frame = WatchedBytes(section([bytes(500)] * 1_000).run.data)
        frames += 1
        await add(bookie, replace(section([b""]), run=parse_run(frame)))
        del frame
        with budget.room("somebody else") as held, budget.room("reader") as room:
            await held.take(8 * MIB)
            if is_compared:
                asked: Any = asyncio.create_task(add(bookie, section([bytes(500)])))
            else:
                read = bookie.read(ReadRequest(ledger_id=7, first_entry=0, last_entry=0), room)
                asked = asyncio.create_task(read)
            await until(lambda: budget.waiting_count == 1)
            await bookie._checkpoints.stop()
            assert frames == 1
            bookie.storage.checkpoint_now()

            assert frames == 0
            held.release()
            await asked


async def read_into_room(bookie: Bookie, entry_id: int, granted: list[int]) -> None:
    """Read one entry as a client of its own; notes the room that it took, and that it fits."""
    budget = bookie.reads_in_progress
    with budget.room(f"client {entry_id}") as room:
        await bookie.read(ReadRequest(ledger_id=7, first_entry=entry_id, last_entry=entry_id), room)
        assert budget.used_bytes <= budget.size_bytes_max
        granted.append(room.size_bytes)


async def test_of_thousands_of_small_duplicates_few_are_compared_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What each is planned with is in no budget: 22,000 of them took 350 MB."""
    monkeypatch.setattr(comparisons, "COMPARISONS_AT_ONCE", 4)
    count = 40
    async with running_bookie(tmp_path) as bookie:
        budget = bookie._comparisons.memory
        for number in range(count):
            await add(bookie, section([b"x"], number, length_before=number))
        with budget.room("somebody else") as held:
            await held.take(8 * MIB)
            again = [
                asyncio.create_task(add(bookie, section([b"x"], number, length_before=number)))
                for number in range(count)
            ]
            await until(lambda: budget.waiting_count == 4)
            await pass_turns(100)
            assert budget.waiting_count == 4

        assert await asyncio.gather(*again) == [Status.OK] * count


async def test_a_duplicate_waits_for_no_other_clients_thousands(tmp_path: Path) -> None:
    """It was compared behind 22,000 of somebody else's: six seconds of CPU, and writers wait ten seconds."""
    # One thread: of several, the one that reads for the honest client may be kept waiting by the system.
    async with running_bookie(tmp_path, read_threads=1) as bookie:
        payloads = [bytes(KIB)] * KIB
        await add(bookie, section(payloads))
        await bookie._checkpoints.stop()
        bookie.storage.checkpoint_now()
        answered: list[str] = []
        honest = asyncio.Event()

        def send(client: str, entry_id: int) -> None:
            def to(_: Status) -> None:
                answered.append(client)
                if client == "honest":
                    honest.set()

            again = section([bytes(KIB)], entry_id, length_before=KIB * entry_id)
            bookie.add(again, to, client)

        for entry_id in range(KIB):
            send("flood", entry_id)
        send("honest", 0)
        await honest.wait()

        # Those that were granted room before it, two for each slot at most.
        assert answered.index("honest") < 2 * comparisons.COMPARISONS_AT_ONCE
        await until(lambda: len(answered) == KIB + 1)
        assert bookie._comparisons.memory.used_bytes == 0


async def test_a_duplicate_does_not_wait_for_readers_who_take_no_replies(tmp_path: Path) -> None:
    """It waited for room in turn with them, ten seconds each, and held the room of everybody's adds until then."""
    async with running_bookie(tmp_path) as bookie:
        payloads = [bytes(KIB)] * KIB
        await add(bookie, section(payloads))
        with bookie.reads_in_progress.room("reader") as held:
            await held.take(bookie.reads_in_progress.size_bytes_max)
            async with asyncio.timeout(seconds(30)):
                assert await add(bookie, section(payloads)) is Status.OK
                await bookie._checkpoints.stop()
                await asyncio.to_thread(bookie.storage.checkpoint_now)
                assert await add(bookie, section(payloads)) is Status.OK


@pytest.mark.parametrize("is_on_disk", [False, True])
async def test_an_entry_that_needs_more_room_than_there_is_can_be_compared(
    tmp_path: Path, is_on_disk: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparisons, "MEMORY_BYTES_MAX", MIB)
    async with running_bookie(tmp_path) as bookie:
        payload = bytes(4 * MIB)
        await add(bookie, section([payload]))
        if is_on_disk:
            await bookie._checkpoints.stop()
            await asyncio.to_thread(bookie.storage.checkpoint_now)
        again = [asyncio.create_task(add(bookie, section([payload]))) for _ in range(3)]

        assert await asyncio.gather(*again) == [Status.OK] * 3
        assert bookie._comparisons.memory.used_bytes == 0
