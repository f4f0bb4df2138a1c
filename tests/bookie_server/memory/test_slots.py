"""Places of requests that wait: a few of each connection's own, and more for whoever comes first."""

from __future__ import annotations

import asyncio

import pytest

from bookie_server.memory.slots import SharedPlaces


async def test_a_connection_has_its_own_and_others_while_there_are_any() -> None:
    shared = SharedPlaces(2, 3)
    greedy, other = shared.of_connection(100), shared.of_connection(100)
    gives_back = [await greedy.take() for _ in range(5)]
    assert shared.left == 0
    waiting = asyncio.create_task(greedy.take())
    own = [await other.take() for _ in range(2)]
    await asyncio.sleep(0)
    assert not waiting.done()

    # A shared one is for whoever asks next; who waits, waits for one of its own.
    gives_back[2]()
    assert shared.left == 1
    own.append(await other.take())
    assert shared.left == 0
    gives_back[0]()
    await waiting
    for give_back in (*gives_back[1:2], *gives_back[3:], *own, waiting.result()):
        give_back()
    assert shared.left == 3
    assert len([await greedy.take() for _ in range(5)]) == 5


@pytest.mark.parametrize("most", [1, 2, 4])
async def test_a_connection_has_no_more_than_its_most(most: int) -> None:
    places = SharedPlaces(2, 100).of_connection(most)
    for _ in range(most):
        await places.take()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await places.take()
    assert await places.take_free() is None


async def test_whoever_will_not_wait_gets_what_is_free() -> None:
    shared = SharedPlaces(1, 1)
    places = shared.of_connection(100)
    own, borrowed = await places.take_free(), await places.take_free()
    assert own is not None
    assert borrowed is not None
    assert shared.left == 0
    assert await places.take_free() is None
    borrowed()
    assert shared.left == 1
    own()
    assert await places.take_free() == own
