"""A bookie deletes ledgers: from then on it takes nothing of them, gives nothing, and denies nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bookie_server import checkpoint_loop
from bookie_server.bookie import Bookie
from bookie_server.core.space import Disk, Mode
from bookie_server.reads.fetching import Fetcher
from bookie_server.storage.burial import BurialResult
from bookie_server.wire.messages import (
    ListRequest,
    LongPoll,
    ReadLacRequest,
    ReadRequest,
    Status,
)
from bookie_server.workers import ThreadWorkers
from tests.doubles.records import KEY, add, section
from tests.doubles.storage import running_bookie, small_settings, start_bookie
from tests.doubles.waits import until

LEDGER = 7


async def status_of_read(bookie: Bookie) -> Status:
    reply = await bookie.read(ReadRequest(ledger_id=LEDGER, first_entry=0, last_entry=0))
    return reply.missing[0].status if reply.missing else Status.OK


def logs(place: Path) -> list[str]:
    return sorted(path.name for path in (place / "l").glob("*.log"))


async def with_entries(place: Path, **changes: int) -> Bookie:
    """A bookie with three entries of ledger 7 in an entry log."""
    async with running_bookie(place) as before:
        assert await add(before, section([b"x" * 100] * 3)) is Status.OK
    return await start_bookie(place, **changes)


async def test_a_deleted_ledger_takes_gives_and_denies_nothing(tmp_path: Path) -> None:
    bookie = await with_entries(tmp_path, checkpoint_interval_ms=100)
    assert list(bookie.held_ledgers) == [LEDGER]
    assert await bookie.delete([(LEDGER, LEDGER)]) is Status.OK

    assert list(bookie.held_ledgers) == []
    assert await status_of_read(bookie) is Status.UNKNOWN
    assert (await bookie.read_lac(ReadLacRequest(LEDGER))).status is Status.DELETED
    assert bookie.list_entries(ListRequest(LEDGER, 0, 0)).status is Status.UNKNOWN
    late = section([b"x" * 100], 3, length_before=300)
    assert await add(bookie, late) is Status.DELETED
    assert await add(bookie, replace(late, is_recovery=True)) is Status.DELETED
    assert await bookie.fence(LEDGER, KEY) is Status.DELETED
    await until(lambda: not logs(tmp_path))
    await bookie.stop()

    async with running_bookie(tmp_path) as again:
        assert await add(again, late) is Status.DELETED
        assert list(again.held_ledgers) == []


async def test_it_is_deleted_though_the_disk_is_full(tmp_path: Path) -> None:
    bookie = await with_entries(tmp_path, checkpoint_interval_ms=100)
    bookie.space.on_no_room()
    assert bookie.space.mode is Mode.FULL

    assert await bookie.delete([(LEDGER, LEDGER)]) is Status.OK

    await until(lambda: not logs(tmp_path))
    await bookie.stop()


async def with_logs(place: Path, monkeypatch: pytest.MonkeyPatch, **changes: int) -> Bookie:
    """A bookie with ledgers 0 to 4, each in a log of its own, that deletes two at once, or four for room."""
    monkeypatch.setattr(checkpoint_loop, "_DELETED_AT_ONCE", 2)
    monkeypatch.setattr(checkpoint_loop, "_DELETED_FOR_ROOM", 4)
    monkeypatch.setattr(checkpoint_loop, "_DELETED_IN_HASTE", 1)
    for ledger_id in range(5):
        async with running_bookie(place) as before:
            assert await add(before, section([b"x"], ledger_id=ledger_id)) is Status.OK
    assert len(logs(place)) == 5
    return await start_bookie(place, **changes)


def watch_burials(bookie: Bookie, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many logs each deletes, as they go on."""
    seen: list[int] = []
    bury = bookie.storage.checkpoints.bury

    def watched(*plan: Any, **how: Any) -> BurialResult:
        result = bury(*plan, **how)
        seen.append(sum(map(len, result.deleted)))
        return result

    monkeypatch.setattr(bookie.storage.checkpoints, "bury", watched)
    return seen


async def test_by_hand_a_disk_is_not_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bookie that is emptied deletes as slowly as others: its neighbours have the same disk."""
    bookie = await with_logs(tmp_path, monkeypatch, checkpoint_interval_ms=100)
    seen = watch_burials(bookie, monkeypatch)
    bookie.set_readonly_by_hand(True)
    assert await bookie.delete([(0, 4)]) is Status.OK
    await until(lambda: not logs(tmp_path))
    await bookie.stop()
    assert seen[:3] == [2, 2, 1]


@pytest.mark.parametrize(
    ("mode", "deleted"),
    [(Mode.WRITABLE, [2, 2, 1]), (Mode.READ_ONLY, [4, 1]), (Mode.FULL, [4, 1])],
)
async def test_much_is_deleted_little_by_little(
    mode: Mode, deleted: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three bookies that deleted 91 logs each kept every sync of their disk waiting for three seconds."""
    bookie = await with_logs(tmp_path, monkeypatch, checkpoint_interval_ms=100)
    seen = watch_burials(bookie, monkeypatch)
    if mode is Mode.READ_ONLY:
        short = small_settings(tmp_path).reserve_for_fences_bytes
        bookie.on_look(bookie.begin_look(), [Disk(short, True, True)])
    if mode is Mode.FULL:
        bookie.space.on_no_room()
    assert bookie.space.mode is mode
    assert await bookie.delete([(0, 4)]) is Status.OK
    await until(lambda: not logs(tmp_path))
    await bookie.stop()
    assert seen[: len(deleted)] == deleted


async def test_a_checkpoint_of_a_full_cache_waits_for_few_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind it, every writer may wait."""
    monkeypatch.setattr(checkpoint_loop, "_LOOK_S", 3_600.0)
    much = 2 * 1024 * 1024
    bookie = await with_logs(tmp_path, monkeypatch, write_cache_size_bytes=much)
    seen = watch_burials(bookie, monkeypatch)
    assert await bookie.delete([(0, 4)]) is Status.OK
    for number in range(2):
        large = section([bytes(much)], number, ledger_id=9, length_before=number * much)
        assert await add(bookie, large) is Status.OK
        await until(lambda: not bookie.storage.contents.cached_bytes)
    await bookie.stop()
    assert seen == [1, 1]
    assert bookie.measures.waiting_logs == 3


@pytest.mark.parametrize("is_full", [False, True])
async def test_a_large_log_is_deleted_in_parts_with_pauses_unless_a_checkpoint_waits(
    is_full: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mib = 1024 * 1024
    async with running_bookie(tmp_path) as before:
        for number in range(3):
            large = section([bytes(3 * mib)], number, length_before=number * 3 * mib)
            assert await add(before, large) is Status.OK
    rests: list[tuple[bool, float]] = []

    def rest(_: ThreadWorkers, may_rest: Callable[[], bool], times: float, most_s: float) -> None:
        # A checkpoint's own are shorter than it works, and no more than so many times.
        if times >= 1_000:
            rests.append((may_rest(), most_s))

    monkeypatch.setattr(ThreadWorkers, "rest", rest)
    monkeypatch.setattr(checkpoint_loop, "_LOOK_S", 3_600.0)
    bookie = await start_bookie(tmp_path, write_cache_size_bytes=mib)
    assert await bookie.delete([(LEDGER, LEDGER)]) is Status.OK
    if is_full:
        assert await add(bookie, section([bytes(mib)], ledger_id=9)) is Status.OK
    else:
        bookie._checkpoints._is_full.set()
    await until(lambda: bookie.measures.deleted_logs == 1)
    await bookie.stop()
    assert rests == [(not is_full, checkpoint_loop._PAUSE_S)] * 2
    assert checkpoint_loop._PAUSE_S < 0.02, "eight logs of 64 MiB take a second"


async def test_who_waits_for_news_of_a_deleted_ledger_is_told(tmp_path: Path) -> None:
    bookie = await with_entries(tmp_path)
    poll = ReadLacRequest(LEDGER, long_poll=LongPoll(previous_lac=9, timeout_ms=60_000))
    waiting = asyncio.create_task(bookie.read_lac(poll))
    await until(lambda: bookie.lac_watch.waiter_count == 1)

    await bookie.delete([(LEDGER, LEDGER)])

    assert (await waiting).status is Status.UNKNOWN
    await bookie.stop()


async def test_a_suspect_takes_no_add_until_the_suspicion_ends(tmp_path: Path) -> None:
    async with running_bookie(tmp_path) as bookie:
        first = asyncio.create_task(add(bookie, section([b"a"])))
        await asyncio.sleep(0)
        await bookie.suspect([LEDGER])
        assert first.done(), "what was admitted before is durable now"
        assert await first is Status.OK

        late = section([b"b"], 1, length_before=1)
        assert await add(bookie, late) is Status.LIMBO
        assert await add(bookie, replace(late, is_recovery=True)) is Status.LIMBO
        assert await status_of_read(bookie) is Status.OK

        await bookie.suspect([])
        assert await add(bookie, late) is Status.OK


async def test_adds_are_refused_from_the_moment_a_deletion_is_on_its_way(tmp_path: Path) -> None:
    async with running_bookie(tmp_path) as bookie:
        deleting = asyncio.create_task(bookie.delete([(5, 9), (20, 20)]))
        await asyncio.sleep(0)
        assert not deleting.done()
        assert await add(bookie, section([b"a"])) is Status.DELETED
        assert await deleting is Status.OK
        assert list(bookie.held_ledgers) == []


def delete_under_first_fetch(bookie: Bookie, place: Path) -> list[object]:
    """The ledger is deleted, and its log, when the first plan is about to be read; returns the plans then."""
    fetcher: Fetcher = bookie._fetcher
    execute = fetcher._execute
    plans: list[object] = []

    async def delayed(plan: object) -> object:
        plans.append(plan)
        if len(plans) == 1:
            await bookie.delete([(LEDGER, LEDGER)])
            await until(lambda: not logs(place))
        return await execute(plan)  # type: ignore[arg-type]

    fetcher._execute = delayed  # type: ignore[method-assign, assignment]
    return plans


async def test_a_read_planned_before_goes_on_behind_the_deletion_of_its_log(tmp_path: Path) -> None:
    """It plans anew: nothing of it is damage, and nothing is denied."""
    bookie = await with_entries(tmp_path, checkpoint_interval_ms=100)
    plans = delete_under_first_fetch(bookie, tmp_path)

    assert await status_of_read(bookie) is Status.UNKNOWN
    assert len(plans) == 2
    assert bookie.damage_log.count == 0
    await bookie.stop()


@pytest.mark.parametrize("is_recovery", [False, True])
async def test_an_add_that_is_compared_meanwhile_is_told(tmp_path: Path, is_recovery: bool) -> None:
    """With nothing left to compare with, nothing differed: it was answered OK."""
    bookie = await with_entries(tmp_path, checkpoint_interval_ms=100)
    delete_under_first_fetch(bookie, tmp_path)
    again = replace(section([b"x" * 100] * 3), is_recovery=is_recovery)

    assert await add(bookie, again) is Status.DELETED
    await bookie.stop()


async def test_a_log_that_is_lost_and_not_deleted_is_damage(tmp_path: Path) -> None:
    bookie = await with_entries(tmp_path)
    (log,) = (tmp_path / "l").glob("*.log")
    log.unlink()

    assert await status_of_read(bookie) is Status.UNKNOWN
    assert bookie.damage_log.count == 1
    await bookie.stop()


async def test_on_a_disk_with_nothing_left_it_waits_for_room(tmp_path: Path) -> None:
    """The journal found none for its next file, which ends a bookie; it makes room down to there."""
    bookie = await with_entries(tmp_path)
    least = small_settings(tmp_path).reserve_for_fences_bytes // 8

    bookie.on_look(bookie.begin_look(), [Disk(least - 1, True, True)])
    assert bookie.space.mode is Mode.EXHAUSTED
    assert await bookie.delete([(LEDGER, LEDGER)]) is Status.READ_ONLY
    assert list(bookie.held_ledgers) == [LEDGER]

    bookie.on_look(bookie.begin_look(), [Disk(least, True, True)])
    assert bookie.space.mode is Mode.EXHAUSTED
    assert await bookie.delete([(LEDGER, LEDGER)]) is Status.OK
    assert list(bookie.held_ledgers) == []
    await bookie.stop()
