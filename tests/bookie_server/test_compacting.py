"""A running bookie rewrites its entry logs between checkpoints, at a pace, and its readers notice nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bookie_server.bookie import Bookie
from bookie_server.core.space import Disk
from bookie_server.wire.messages import ReadRequest, Status
from tests.doubles.records import add, section
from tests.doubles.storage import running_bookie
from tests.doubles.waits import until

OFTEN = {"checkpoint_interval_ms": 10, "minor_compaction_interval_ms": 50}


def logs(place: Path) -> list[str]:
    return sorted(path.name for path in (place / "l").glob("*.log"))


async def trickle(bookie: Bookie, place: Path, count: int, first: int = 0) -> None:
    """An entry for each checkpoint."""
    for entry_id in range(first, first + count):
        before = bookie.storage.contents.checkpoint_number
        assert await add(bookie, section([b"x"], entry_id, length_before=entry_id)) is Status.OK
        await until(lambda n=before: bookie.storage.contents.checkpoint_number > n)  # type: ignore[misc]


async def steps(bookie: Bookie) -> None:
    """Wait for two of compaction's steps; the first may have begun before."""
    compaction = bookie._checkpoints._compaction
    for _ in range(2):
        due_s = compaction._minor_at_s
        await until(lambda due_s=due_s: compaction._minor_at_s > due_s)  # type: ignore[misc]


async def entries(bookie: Bookie, last: int) -> bool:
    reply = await bookie.read(ReadRequest(ledger_id=7, first_entry=0, last_entry=last))
    return not reply.missing


async def test_a_trickle_of_entries_keeps_few_logs(tmp_path: Path) -> None:
    async with running_bookie(tmp_path, **OFTEN) as bookie:
        await trickle(bookie, tmp_path, 20)
        await until(lambda: len(logs(tmp_path)) < 8)
        assert await entries(bookie, 19)
    async with running_bookie(tmp_path) as again:
        assert await entries(again, 19)
        assert again.damage_log.count == 0


async def test_a_pace_of_zero_rewrites_nothing(tmp_path: Path) -> None:
    async with running_bookie(tmp_path, **OFTEN, compaction_bytes_per_second=0) as bookie:
        await trickle(bookie, tmp_path, 12)
        await asyncio.sleep(0.3)
        assert len(logs(tmp_path)) == 12


async def test_the_next_step_waits_as_long_as_the_last_ones_bytes_take(tmp_path: Path) -> None:
    async with running_bookie(tmp_path, **OFTEN, compaction_bytes_per_second=1) as bookie:
        await trickle(bookie, tmp_path, 9)
        await until(lambda: len(logs(tmp_path)) < 9)
        loop = bookie._checkpoints._compaction
        assert not loop.is_due(asyncio.get_running_loop().time() + 60)


async def test_a_sparse_log_is_rewritten_on_a_disk_that_is_short_of_room(tmp_path: Path) -> None:
    """Else a disk full of logs with one living ledger each would stay full for ever."""
    async with running_bookie(tmp_path) as before:
        for ledger_id in range(1, 11):
            part = section([bytes(2000)], ledger_id=ledger_id)
            assert await add(before, part) is Status.OK
    (first,) = logs(tmp_path)
    async with running_bookie(tmp_path, **OFTEN) as bookie:
        settings = bookie._settings
        tight, short = settings.full_below_bytes + 100_000, settings.read_only_below_bytes - 1
        bookie.on_look(bookie.begin_look(), [Disk(tight, True, True)])
        assert await bookie.delete([(2, 10)]) is Status.OK
        await steps(bookie)
        assert first in logs(tmp_path), "the copy would take what is kept for fences"
        bookie.on_look(bookie.begin_look(), [Disk(short, True, True)])
        await until(lambda: first not in logs(tmp_path))
        assert len(logs(tmp_path)) == 1


async def test_a_log_that_is_half_dead_waits_for_no_major_round(tmp_path: Path) -> None:
    """Merging puts a ledger that stays among those that go: its log was kept for an hour."""
    async with running_bookie(tmp_path, checkpoint_interval_ms=10) as bookie:
        for ledger_id in range(1, 11):
            part = section([bytes(2000)], ledger_id=ledger_id)
            assert await add(bookie, part) is Status.OK
        await until(lambda: len(logs(tmp_path)) == 1)
        (first,) = logs(tmp_path)
        compaction = bookie._checkpoints._compaction
        compaction._minor_at_s += 3_600
        compaction._major_at_s = compaction._minor_at_s
        assert await bookie.delete([(2, 6)]) is Status.OK
        await until(lambda: first not in logs(tmp_path))
        assert len(logs(tmp_path)) == 1


async def test_without_room_at_all_nothing_is_rewritten(tmp_path: Path) -> None:
    async with running_bookie(tmp_path, **OFTEN, compaction_bytes_per_second=0) as before:
        await trickle(before, tmp_path, 9)
    async with running_bookie(tmp_path, **OFTEN) as bookie:
        bookie.on_look(bookie.begin_look(), [Disk(0, True, True)])
        await steps(bookie)
        assert len(logs(tmp_path)) == 9
        bookie.on_look(bookie.begin_look(), [Disk(1 << 40, True, True)])
        await until(lambda: len(logs(tmp_path)) == 1)


async def test_a_defect_in_it_ends_the_bookie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_bookie(tmp_path, **OFTEN) as bookie:
        failure = RuntimeError("planted")

        def fail(_: object) -> None:
            raise failure

        monkeypatch.setattr(bookie.storage.contents, "finish_compaction", fail)
        await trickle(bookie, tmp_path, 8)
        assert await bookie.failed is failure
