"""The simulated loop is a clock that never errs, and a process in it can be killed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

import pytest

from tests.simulation.kit.loop import NothingLeftError, Owner, SimLoop


@pytest.fixture
def loop() -> Iterator[SimLoop]:
    made = SimLoop()
    yield made
    made.steps_max *= 1000
    for task in asyncio.all_tasks(made):
        task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        made.run_until_complete(asyncio.sleep(0))
    made.close()


def test_time_jumps_to_the_next_timer(loop: SimLoop) -> None:
    loop.run_until_complete(asyncio.sleep(3600))

    assert loop.now_us == 3_600_000_000
    assert loop.steps < 10


def test_what_is_due_at_once_runs_in_the_order_it_was_asked_for(loop: SimLoop) -> None:
    heard: list[int] = []

    for number in range(100):
        loop.after(500 if number % 2 else 250, heard.append, number)
    loop.run_until_complete(asyncio.sleep(0.001))

    assert heard == [*range(0, 100, 2), *range(1, 100, 2)]


@pytest.mark.parametrize("when_s", [0.1 + 0.2, 1 / 3, 1.0000001, 2.675])
def test_no_timer_is_early(loop: SimLoop, when_s: float) -> None:
    """A timer that fires before its time is set again for the same time, for ever."""
    heard: list[float] = []

    loop.call_at(when_s, lambda: heard.append(loop.time()))
    loop.run_until_complete(asyncio.sleep(5))

    assert when_s <= heard[0] <= when_s + 0.000_002


def test_waiting_for_nothing_is_an_error(loop: SimLoop) -> None:
    with pytest.raises(NothingLeftError):
        loop.run_until_complete(loop.create_future())


def test_spinning_is_an_error(loop: SimLoop) -> None:
    loop.steps_max = 1000

    async def spin() -> None:
        while True:  # noqa: ASYNC110 - that is the point
            await asyncio.sleep(0)

    with pytest.raises(NothingLeftError, match="still busy"):
        loop.run_until_complete(spin())


def test_executors_work_on_the_spot(loop: SimLoop) -> None:
    async def main() -> tuple[int, type[BaseException]]:
        good = await asyncio.to_thread(int, "7")
        with pytest.raises(ValueError) as caught:
            await asyncio.to_thread(int, "x")
        return good, caught.type

    assert loop.run_until_complete(main()) == (7, ValueError)


def test_a_killed_process_ends_with_all_it_started(loop: SimLoop) -> None:
    heard: list[str] = []

    async def child() -> None:
        await asyncio.sleep(1)
        heard.append("child")

    async def parent() -> None:
        task = asyncio.create_task(child(), name="child")
        await asyncio.sleep(0.5)
        heard.append("parent")
        await task

    async def main() -> None:
        owner = Owner("victim")
        owner.start(parent(), "test")
        await asyncio.sleep(0.7)
        owner.kill()
        await asyncio.sleep(1)

    loop.run_until_complete(main())

    assert heard == ["parent"]


def test_a_dead_process_starts_nothing(loop: SimLoop) -> None:
    heard: list[str] = []

    async def late() -> None:
        heard.append("late")

    async def stubborn() -> None:
        try:
            await asyncio.sleep(10)
        finally:
            asyncio.create_task(late(), name="late")  # noqa: RUF006 - it must not run at all

    async def main() -> None:
        owner = Owner("victim")
        owner.start(stubborn(), "test")
        await asyncio.sleep(1)
        owner.kill()
        await asyncio.sleep(1)

    loop.run_until_complete(main())

    assert heard == []


def test_what_comes_in_a_pause_keeps_its_order_though_the_pause_is_made_longer(
    loop: SimLoop,
) -> None:
    owner = Owner("sleeper")
    heard: list[tuple[str, int]] = []

    def come(name: str) -> None:
        owner.run(lambda: heard.append((name, loop.now_us)))

    loop.after(0, owner.pause, 100)
    loop.after(10, come, "before")
    loop.after(50, owner.pause, 300)
    loop.after(60, come, "behind")
    loop.after(70, owner.pause, 200)  # it says nothing new
    loop.after(300, come, "as it ends")
    loop.run_until_complete(asyncio.sleep(1))

    assert heard == [("before", 300), ("behind", 300), ("as it ends", 300)]


def test_a_pause_that_is_called_off_lets_go_of_what_came_in_it(loop: SimLoop) -> None:
    owner = Owner("sleeper")
    heard: list[tuple[str, int]] = []
    loop.after(0, owner.pause, 100)
    loop.after(10, owner.run, lambda: heard.append(("before", loop.now_us)))
    loop.after(20, owner.resume)
    loop.after(20, owner.run, lambda: heard.append(("behind", loop.now_us)))
    loop.run_until_complete(asyncio.sleep(1))

    assert heard == [("before", 20), ("behind", 20)]


def test_what_came_in_a_pause_never_happens_to_one_that_was_killed_in_it(loop: SimLoop) -> None:
    owner = Owner("sleeper")
    heard: list[str] = []
    loop.after(0, owner.pause, 100)
    loop.after(10, owner.run, lambda: heard.append("act"))
    loop.after(20, owner.kill)
    loop.run_until_complete(asyncio.sleep(1))

    assert heard == []


def test_an_error_in_a_callback_is_noted(loop: SimLoop) -> None:
    loop.after(1, lambda: 1 // 0)
    loop.run_until_complete(asyncio.sleep(1))

    assert "ZeroDivisionError" in loop.failures[0]
