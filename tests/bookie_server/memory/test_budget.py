"""MemoryBudget: who waits, who is served next, and that nobody waits for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from bookie_server.memory import frames as frames_module
from bookie_server.memory.budget import MemoryBudget, Room
from bookie_server.memory.frames import EXPECTED_MIN, FramesInProgress, PromisedMemory
from bookie_server.wire.limits import FRAME_SIZE_MAX
from bookkeeper_metadata.foundation.invariant import InvariantViolation
from bookkeeper_metadata.foundation.tasks import end_tasks
from tests.doubles.waits import pass_turns
from tests.patience import seconds

NEVER_S = 3_600.0
MIB = 1024 * 1024


class Cache(asyncio.Event):
    """A write cache that has room as long as the event is set, and says so a turn later."""

    def __init__(self, *, has_room: bool = True) -> None:
        super().__init__()
        if has_room:
            self.set()

    @property
    def has_room(self) -> bool:
        return self.is_set()

    async def wait_for_room(self) -> None:
        await pass_turns(1)
        await self.wait()


class Silent:
    """A connection by which nothing comes, or what a test says."""

    def __init__(self) -> None:
        self.received_bytes = 0
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


async def taken(budget: MemoryBudget, client: str, size_bytes: int) -> Room:
    room = budget.room(client)
    await room.take(size_bytes)
    return room


def waiting(budget: MemoryBudget, *wants: tuple[str, int]) -> list[asyncio.Task[Room]]:
    return [asyncio.create_task(taken(budget, client, size)) for client, size in wants]


def served(tasks: Sequence[asyncio.Task[Room]]) -> list[int]:
    return [index for index, task in enumerate(tasks) if task.done()]


async def test_who_finds_no_room_waits_until_others_give_theirs_back() -> None:
    budget = MemoryBudget(100, patience_s=NEVER_S)
    first = await taken(budget, "a", 70)
    tasks = waiting(budget, ("b", 40), ("c", 20))
    await pass_turns(3)
    # The smaller one does not overtake: the larger would wait for ever.
    assert (served(tasks), budget.used_bytes, budget.waiting_count) == ([], 70, 2)

    first.resize(60)
    await pass_turns(3)
    assert (served(tasks), budget.used_bytes) == ([0], 100)

    first.release()
    first.release()
    await pass_turns(3)
    assert (served(tasks), budget.used_bytes) == ([0, 1], 60)


async def test_who_holds_least_is_served_next() -> None:
    """A flood waits for itself."""
    budget = MemoryBudget(100, patience_s=NEVER_S)
    held = [await taken(budget, "flood", 50) for _ in range(2)]
    tasks = waiting(budget, *[("flood", 50)] * 3, ("honest", 50), ("other", 50))
    await pass_turns(3)

    held[0].release()
    await pass_turns(3)
    assert served(tasks) == [3]
    held[1].release()
    await pass_turns(3)
    # Between equals, which by now hold nothing, the first comes first.
    assert served(tasks) == [0, 3]


async def test_more_than_there_is_at_all_is_served_alone() -> None:
    budget = MemoryBudget(100, patience_s=NEVER_S)
    first = await taken(budget, "a", 1)
    (task,) = waiting(budget, ("b", 1_000))
    await pass_turns(3)
    assert not task.done()

    first.release()
    assert (await task).size_bytes == 100


async def test_a_wait_that_is_cancelled_leaves_nothing_behind() -> None:
    budget = MemoryBudget(100, patience_s=NEVER_S)
    first = await taken(budget, "a", 100)
    tasks = waiting(budget, ("b", 100), ("c", 100), ("d", 10))
    await pass_turns(3)
    await end_tasks([tasks[1]])

    # Granted and cancelled in the same turn.
    first.release()
    await end_tasks([tasks[0]])

    # And the other way round.
    last = waiting(budget, ("e", 100))
    room = await tasks[2]
    last[0].cancel()
    room.resize(5)
    room.resize(10)
    await end_tasks(last)

    assert room.size_bytes == 10
    assert (budget.used_bytes, budget.waiting_count) == (10, 0)


async def test_who_gives_up_holds_up_nobody_behind() -> None:
    """What there is was too little for the one that waited first, not for the next."""
    budget = MemoryBudget(100, patience_s=NEVER_S)
    await taken(budget, "a", 50)
    tasks = waiting(budget, ("b", 100), ("c", 20))
    await pass_turns(3)
    assert served(tasks) == []

    tasks[0].cancel()
    await pass_turns(3)

    assert (await tasks[1]).size_bytes == 20
    assert budget.waiting_count == 0


async def test_what_was_lent_for_long_is_taken_back_only_while_others_wait() -> None:
    budget = MemoryBudget(100, patience_s=0.01)
    lent, kept = [await taken(budget, "a", 40) for _ in range(2)]
    lent.lend(lambda: lent.resize(0))
    kept.lend(lambda: kept.resize(0))
    kept.reclaim()
    await asyncio.sleep(0.05)
    assert budget.used_bytes == 80

    (task,) = waiting(budget, ("b", 50))
    await task

    assert (lent.size_bytes, kept.size_bytes, budget.used_bytes) == (0, 40, 90)


async def test_whoever_holds_room_does_not_wait_for_more() -> None:
    """Two of them could wait for each other."""
    room = await taken(MemoryBudget(100, patience_s=NEVER_S), "a", 10)
    with pytest.raises(InvariantViolation):
        await room.take(10)


async def test_who_waits_for_himself_only_keeps_what_was_lent() -> None:
    """A reader that paused was cut off although nobody else was there."""
    budget = MemoryBudget(100, patience_s=0.001)
    lent = await taken(budget, "a", 80)
    lent.lend(lambda: lent.resize(0))
    (own,) = waiting(budget, ("a", 50))
    await asyncio.sleep(0.02)
    assert lent.size_bytes == 80

    tasks = waiting(budget, ("b", 30))
    await tasks[0]
    await own
    assert lent.size_bytes == 0


async def test_a_frame_is_in_progress_until_its_last_section_is_answered() -> None:
    budget = MemoryBudget(4 * FRAME_SIZE_MAX, patience_s=NEVER_S)
    memory = PromisedMemory(budget, Cache())
    frames = FramesInProgress(memory, "a")
    await frames.expect()
    assert budget.used_bytes == EXPECTED_MIN

    frame = await frames.arrive(1_000_000)
    frame.hold()
    frame.let_go()
    assert budget.used_bytes == 1_000_000
    await frames.expect()
    # At work: its next frame is as large as the last, most likely.
    assert budget.used_bytes == 2_000_000

    frame.let_go()
    frames.close()
    assert budget.used_bytes == 0
    await frames.expect()
    assert budget.used_bytes == EXPECTED_MIN


async def test_idle_streams_keep_nobody_waiting() -> None:
    """Idle ones took room for the largest frame in turn, and frames that were there stood behind them."""
    budget = MemoryBudget(FRAME_SIZE_MAX, patience_s=0.01)
    memory = PromisedMemory(budget, Cache())
    streams = [FramesInProgress(memory, str(number)) for number in range(200)]
    for stream in streams:
        await stream.expect()

    frame = await streams[7].arrive(1_000)
    assert budget.used_bytes <= FRAME_SIZE_MAX
    frame.let_go()


async def test_frames_that_come_all_at_once_wait_for_room_and_none_is_refused() -> None:
    """Two hundred writers with a MiB each, all at once: some were told that the bookie is away."""
    budget = MemoryBudget(FRAME_SIZE_MAX, patience_s=0.001)
    memory = PromisedMemory(budget, Cache())
    streams = [FramesInProgress(memory, str(number)) for number in range(40)]
    for stream in streams:
        await stream.expect()
    used = []

    async def serve(stream: FramesInProgress) -> None:
        frame = await stream.arrive(FRAME_SIZE_MAX // 2)
        used.append(budget.used_bytes)
        await asyncio.sleep(0)
        frame.let_go()

    await asyncio.gather(*map(serve, streams))

    assert len(used) == 40
    assert max(used) <= FRAME_SIZE_MAX
    assert budget.used_bytes == 0


async def test_a_frame_larger_than_the_budget_is_served_alone() -> None:
    budget = MemoryBudget(FRAME_SIZE_MAX, patience_s=NEVER_S)
    memory = PromisedMemory(budget, Cache())
    stream = FramesInProgress(memory, "a")
    await stream.expect()

    frame = await stream.arrive(3 * FRAME_SIZE_MAX)

    frame.let_go()
    assert budget.used_bytes == 0


async def announced(stream: FramesInProgress, size_bytes: int) -> None:
    await stream.expect()
    await stream.announce(size_bytes)


@pytest.mark.parametrize("how", ["announced", "expected"])
async def test_a_frame_of_known_size_is_read_once_it_has_room_and_the_cache_has(how: str) -> None:
    """It had looked at the cache before it waited for its room, and the others filled that meanwhile."""
    budget = MemoryBudget(FRAME_SIZE_MAX, patience_s=NEVER_S)
    cache = Cache(has_room=False)
    stream = FramesInProgress(PromisedMemory(budget, cache), "a")
    begin = stream.announce if how == "announced" else stream.expect
    with await taken(budget, "other", FRAME_SIZE_MAX):
        cache.set()
        task = asyncio.create_task(begin(MIB))
        await pass_turns(3)
        cache.clear()
    await pass_turns(3)
    assert (task.done(), budget.used_bytes) == (False, MIB)

    cache.set()
    await task
    stream.close()
    assert budget.used_bytes == 0


async def test_a_frame_is_begun_at_once_only_where_nothing_has_to_be_waited_for() -> None:
    budget, cache = MemoryBudget(FRAME_SIZE_MAX, patience_s=0.01), Cache(has_room=False)
    stream = FramesInProgress(PromisedMemory(budget, cache), "a")
    assert not stream.try_expect(MIB, Silent())
    cache.set()
    with await taken(budget, "other", FRAME_SIZE_MAX):
        assert not stream.try_expect(MIB, Silent())
        (first,) = waiting(budget, ("first", FRAME_SIZE_MAX))
        await pass_turns(3)
    (await first).release()
    assert budget.used_bytes == 0

    assert stream.try_expect(MIB, Silent())
    # It does not come, and others need its room.
    (task,) = waiting(budget, ("b", FRAME_SIZE_MAX))
    async with asyncio.timeout(seconds(5)):
        (await task).release()
    assert budget.used_bytes == 0


async def test_announced_frames_leave_a_part_of_the_room_to_others() -> None:
    """Whoever announces much and sends nothing stands in the way of such as himself only."""
    budget = MemoryBudget(32 * MIB, patience_s=NEVER_S)
    memory = PromisedMemory(budget, Cache())
    streams = [FramesInProgress(memory, f"greedy {number}") for number in range(10)]
    tasks = [asyncio.create_task(announced(stream, FRAME_SIZE_MAX)) for stream in streams]
    await pass_turns(5)
    assert sum(task.done() for task in tasks) == 2
    assert budget.used_bytes == 16 * MIB
    assert memory.promises.waiting_count == 8

    other = FramesInProgress(memory, "other")
    await other.expect()
    frame = await other.arrive(10 * MIB)
    assert budget.used_bytes == 26 * MIB

    frame.let_go()
    await end_tasks(tasks)
    for stream in streams:
        stream.close()
    other.close()
    assert (budget.used_bytes, memory.promises.used_bytes) == (0, 0)


async def test_who_announces_and_does_not_send_is_given_up_only_while_others_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(frames_module, "STALLED_AFTER_S", 0.01)
    budget = MemoryBudget(FRAME_SIZE_MAX, patience_s=0.01)
    memory = PromisedMemory(budget, Cache())
    stalled, other = FramesInProgress(memory, "stalled"), FramesInProgress(memory, "other")
    given_up: list[str] = []

    def give_up() -> None:
        given_up.append("stalled")
        stalled.close()

    await announced(stalled, FRAME_SIZE_MAX)
    stalled.begin_await(give_up)
    await asyncio.sleep(0.05)
    assert given_up == []

    await announced(other, 1_000_000)
    assert given_up == ["stalled"]
    assert budget.used_bytes == 1_000_000


async def test_a_stream_that_goes_on_is_not_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each piece starts the time anew, and with the last one it ends."""
    monkeypatch.setattr(frames_module, "STALLED_AFTER_S", NEVER_S)
    budget = MemoryBudget(FRAME_SIZE_MAX, patience_s=0.01)
    memory = PromisedMemory(budget, Cache())
    busy, other = FramesInProgress(memory, "busy"), FramesInProgress(memory, "other")
    given_up: list[str] = []
    await announced(busy, FRAME_SIZE_MAX)
    busy.begin_await(lambda: given_up.append("busy"))
    waiting_for_room = asyncio.create_task(announced(other, FRAME_SIZE_MAX))
    await asyncio.sleep(0.05)
    busy.begin_await(lambda: given_up.append("busy"))
    busy.end_await()

    # What its sections cost beside their bytes is granted at once: the bytes are here.
    frame = await busy.arrive(FRAME_SIZE_MAX + 1_000)
    frame.let_go()
    await waiting_for_room

    assert given_up == []


@pytest.mark.parametrize("comes_bytes", [0, EXPECTED_MIN - 1, EXPECTED_MIN])
async def test_of_frames_that_are_late_as_many_are_kept_as_there_is_room_for_twice(
    monkeypatch: pytest.MonkeyPatch, comes_bytes: int
) -> None:
    monkeypatch.setattr(frames_module, "STALLED_LOOK_S", 0.05)
    budget = MemoryBudget(2 * MIB, patience_s=0.01)
    memory = PromisedMemory(budget, Cache())
    frames = [FramesInProgress(memory, f"late {number}") for number in range(6)]
    senders = [Silent() for _ in frames]
    for stream, sender in zip(frames, senders, strict=True):
        await stream.expect(MIB, sender)
    other = FramesInProgress(memory, "other")
    waits = asyncio.create_task(other.expect(2 * MIB, Silent()))
    await waits
    # Two hold room no more, and two hold what is for such; of the others something must come.
    senders[5].received_bytes += comes_bytes
    await asyncio.sleep(seconds(0.2))
    assert [sender.is_closed for sender in senders[:5]] == [False, False, True, True, True]
    assert senders[5].is_closed == (comes_bytes < EXPECTED_MIN)
    assert memory.stalled.used_bytes == 2 * MIB
    other.close()
    frames[0].close()
    assert memory.stalled.used_bytes == MIB
    frame = await frames[1].arrive(MIB)
    assert memory.stalled.used_bytes == 0
    frame.let_go()
