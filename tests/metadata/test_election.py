"""One auditor at a time, in the order of the votes; the office goes with the session."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from bookkeeper_metadata.cluster import initialize
from bookkeeper_metadata.election import AuditorElection, elected_auditor
from bookkeeper_metadata.paths import Paths
from bookkeeper_metadata.store.memory import Fault, MemoryStore
from tests.patience import seconds

ROOT = "/ledgers"


async def candidates(count: int) -> list[tuple[MemoryStore, AuditorElection]]:
    first = MemoryStore()
    await initialize(first, ROOT, random=Random(0))
    stores = [first, *(MemoryStore(first.tree) for _ in range(count - 1))]
    return [(store, AuditorElection(store, ROOT, f"b{at}:3181")) for at, store in enumerate(stores)]


@pytest.mark.conformance("A5")
async def test_the_first_is_elected_and_the_next_when_it_goes() -> None:
    (first, one), (second, two), (third, three) = await candidates(3)
    assert await elected_auditor(first, ROOT) is None

    await asyncio.wait_for(one.win(), seconds(5))
    waiting = [asyncio.create_task(each.win()) for each in (two, three)]
    await asyncio.sleep(0.05)
    assert not any(each.done() for each in waiting)
    assert await one.is_first()
    assert not await two.is_first()
    assert await elected_auditor(third, ROOT) == "b0:3181"

    await first.close()
    await asyncio.wait_for(waiting[0], seconds(5))
    assert await elected_auditor(third, ROOT) == "b1:3181"
    assert not waiting[1].done()
    await two.release()
    await asyncio.wait_for(waiting[1], seconds(5))
    await third.close()
    assert await elected_auditor(second, ROOT) is None


@pytest.mark.conformance("A5")
async def test_who_loses_its_session_is_not_elected_any_more() -> None:
    (first, one), (_, two) = await candidates(2)
    await one.win()
    waiting = asyncio.create_task(two.win())
    await asyncio.sleep(0.01)

    first.expire()

    assert not await one.is_first()
    await asyncio.wait_for(waiting, seconds(5))
    again = asyncio.create_task(one.win())
    await asyncio.sleep(0.05)
    assert not again.done(), "it stands behind the other"
    again.cancel()


async def test_votes_are_apaches() -> None:
    """As ``TextFormat`` writes them, under names that its electors compare by their numbers."""
    ((store, one),) = await candidates(1)
    await one.win()

    path = Paths(ROOT).auditor_election
    assert await store.children(path) == ["V_0000000000"]
    for node in (await store.get(path), await store.get(f"{path}/V_0000000000")):
        assert node is not None
        assert node.value == b'bookieId: "b0:3181"\n'


@pytest.mark.parametrize("fault", list(Fault))
async def test_a_candidate_whose_vote_got_no_reply_has_one_vote(fault: Fault) -> None:
    ((store, one),) = await candidates(1)
    faults = iter([fault])
    store.fault = lambda operation, path: next(faults, None) if operation == "sequence" else None

    await asyncio.wait_for(one.win(), seconds(5))

    assert len(await store.children(Paths(ROOT).auditor_election) or []) == 1
