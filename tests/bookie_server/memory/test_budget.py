"""MemoryBudget: who waits, who is served next, and that nobody waits for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from bookie_server.memory.budget import MemoryBudget, Room
from bookie_server.memory.frames import FramesInProgress, TooLittleRoomError
from bookie_server.wire.limits import FRAME_SIZE_MAX
from bookkeeper_metadata.foundation.invariant import InvariantViolation
from bookkeeper_metadata.foundation.tasks import end_tasks
from tests.doubles.waits import pass_turns, until

NEVER_S = 3_600.0


class Connected:
    """Clients of which a test says what they sent."""

    def __init__(self, *received_bytes: int) -> None:
        self._received_bytes = iter(received_bytes)
        self.disconnected: list[str] = []

    def received_bytes(self, _: str) -> int:
        return next(self._received_bytes, 0)

    def disconnect(self, client: str) -> None:
        self.disconnected.append(client)


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


async def test_a_frame_is_in_progress_until_its_last_section_is_answered() -> None:
    budget = MemoryBudget(4 * FRAME_SIZE_MAX, patience_s=NEVER_S)
    frames = FramesInProgress(budget, "a", Connected())
    await frames.expect()
    # Nothing is known of a new stream, so room for the largest frame is there before it is read.
    assert budget.used_bytes == FRAME_SIZE_MAX

    frame = frames.arrive(1_000_000)
    frame.hold()
    frame.let_go()
    assert budget.used_bytes == 1_000_000
    await frames.expect()
    assert budget.used_bytes == 3_000_000

    frame.let_go()
    frames.close()
    assert budget.used_bytes == 0


async def test_an_idle_stream_gives_up_the_room_of_its_next_frame() -> None:
    budget = MemoryBudget(FRAME_SIZE_MAX, patience_s=0.01)
    idle, other = (
        FramesInProgress(budget, "a", Connected()),
        FramesInProgress(budget, "b", Connected()),
    )
    await idle.expect()
    await other.expect()
    await until(lambda: budget.used_bytes == FRAME_SIZE_MAX)

    # Its frame is let in all the same, for the memory is taken already.
    frame = idle.arrive(1_000)
    assert budget.used_bytes == FRAME_SIZE_MAX + 1_000
    frame.let_go()


async def test_frames_nobody_expected_are_dropped_beyond_a_part_of_the_budget() -> None:
    budget = MemoryBudget(FRAME_SIZE_MAX, patience_s=0.001)
    streams = [FramesInProgress(budget, str(number), Connected()) for number in range(4)]
    for stream in streams:
        await stream.expect()
    await until(lambda: budget.used_bytes == FRAME_SIZE_MAX)
    frames = [streams[3].arrive(FRAME_SIZE_MAX), streams[0].arrive(FRAME_SIZE_MAX // 2)]

    with pytest.raises(TooLittleRoomError):
        streams[1].arrive(FRAME_SIZE_MAX)

    assert budget.used_bytes == FRAME_SIZE_MAX * 3 // 2
    for frame in frames:
        frame.let_go()
    assert budget.used_bytes == 0


async def test_a_stream_whose_frame_is_on_its_way_keeps_its_room() -> None:
    """While the loop was busy with frames, all streams counted as idle, and all were let send."""
    budget = MemoryBudget(FRAME_SIZE_MAX, patience_s=0.001)
    stream = FramesInProgress(budget, "a", Connected(1, 2, 3, 4, 4))
    await stream.expect()
    (task,) = waiting(budget, ("b", 1))
    await asyncio.sleep(0.0015)
    assert not task.done()

    await task
    assert budget.used_bytes == 1


async def test_who_never_ends_a_frame_is_disconnected_while_others_wait() -> None:
    budget = MemoryBudget(FRAME_SIZE_MAX, patience_s=0.0001)
    clients = Connected(*range(1, 1_000))
    stream = FramesInProgress(budget, "a", clients)
    await stream.expect()
    tasks = waiting(budget, ("b", 1))

    await until(lambda: clients.disconnected == ["a"])
    stream.close()
    await tasks[0]
