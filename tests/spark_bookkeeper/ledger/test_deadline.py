"""The time limit of an add is that of each add: none is forgotten, and none ends for another's."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_bookkeeper.ledger.pending_adds import QuorumDeadline
from tests.doubles.virtual_time import on_virtual_time

LIMIT_MS = 101
STEP = st.integers(1, 30).map(lambda half: 2 * half)
"""Milliseconds between what happens. No deadline falls upon an event: which of them came first, nobody says."""
EVENTS = st.lists(st.tuples(STEP, st.sampled_from(["push", "push 3", "acknowledge"])), max_size=30)


def expiry_of(events: list[tuple[int, str]], limit_ms: int) -> int | None:
    """The dumb twin: when the first entry has waited for so long; ``None``: none does."""
    now_ms, waiting, next_entry = 0, dict[int, int](), 0
    for step_ms, what in [*events, (10 * LIMIT_MS, "end")]:
        now_ms += step_ms
        due_ms = min(waiting.values(), default=now_ms + 1)
        if limit_ms and due_ms <= now_ms:
            return due_ms
        if what == "acknowledge":
            waiting.pop(min(waiting, default=-1), None)
        elif what != "end":
            next_entry += 3 if what == "push 3" else 1
            waiting[next_entry - 1] = now_ms + limit_ms
    return None


async def observed_expiry(events: list[tuple[int, str]], limit_ms: int) -> int | None:
    loop = asyncio.get_running_loop()
    expired: list[int] = []
    deadline = QuorumDeadline(limit_ms, lambda: expired.append(round(loop.time() * 1000)))
    waiting, next_entry = list[int](), 0
    for step_ms, what in events:
        await asyncio.sleep(step_ms / 1000)
        if expired:
            break
        if what == "acknowledge":
            if waiting:
                deadline.on_acknowledged(waiting.pop(0))
        else:
            next_entry += 3 if what == "push 3" else 1
            waiting.append(next_entry - 1)
            deadline.on_pushed(next_entry - 1)
    await asyncio.sleep(LIMIT_MS / 100)
    deadline.cancel()
    return expired[0] if expired else None


def run(events: list[tuple[int, str]], limit_ms: int) -> int | None:
    return on_virtual_time(observed_expiry(events, limit_ms))


@settings(max_examples=200, deadline=None)
@given(EVENTS)
def test_the_first_add_that_waits_too_long_ends_the_writer_when_it_has(
    events: list[tuple[int, str]],
) -> None:
    assert run(events, LIMIT_MS) == expiry_of(events, LIMIT_MS)


@pytest.mark.parametrize("gap_ms", [1, 50, 99, 150, 400])
def test_an_add_behind_one_that_was_acknowledged_in_time_has_a_limit_too(gap_ms: int) -> None:
    """Whether it was pushed while the timer of the one before still ran, or after that."""
    events = [(1, "push"), (10, "acknowledge"), (gap_ms, "push")]

    assert run(events, LIMIT_MS) == 11 + gap_ms + LIMIT_MS


def test_without_a_limit_every_add_waits() -> None:
    assert run([(1, "push")], 0) is None


def test_adds_that_are_forgotten_end_nobody() -> None:
    async def main() -> bool:
        has_expired = False

        def on_expired() -> None:
            nonlocal has_expired
            has_expired = True

        deadline = QuorumDeadline(LIMIT_MS, on_expired)
        deadline.on_pushed(0)
        deadline.cancel()
        await asyncio.sleep(LIMIT_MS / 100)
        return has_expired

    assert not on_virtual_time(main())
