"""Two at once: nothing of either goes on behind the caller's back."""

from __future__ import annotations

import asyncio

import pytest

from bookkeeper_metadata.foundation.bounded import both


async def test_both_waits_for_the_other_one_when_one_fails() -> None:
    ended: list[str] = []

    async def fails() -> None:
        raise ZeroDivisionError

    async def takes_longer() -> None:
        await asyncio.sleep(0.01)
        ended.append("longer")

    for order in ((fails, takes_longer), (takes_longer, fails)):
        with pytest.raises(ZeroDivisionError):
            await both(*(each() for each in order))
    assert ended == ["longer"] * 2


async def test_the_error_of_the_first_is_raised_when_both_fail() -> None:
    async def fails(error: Exception, after_s: float) -> None:
        await asyncio.sleep(after_s)
        raise error

    with pytest.raises(KeyError):
        await both(fails(KeyError(), 0.01), fails(IndexError(), 0))


async def test_who_gives_up_gives_both_up() -> None:
    left: list[str] = []

    async def waits() -> None:
        try:
            await asyncio.sleep(3_600)
        finally:
            left.append("ended")

    task = asyncio.create_task(both(waits(), waits()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert left == ["ended"] * 2
