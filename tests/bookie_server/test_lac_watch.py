"""Who waits for a LAC is released by news, by the end of all news, and leaves nothing behind."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from bookie_server.core.handle_state import LedgerHandleState
from bookie_server.core.ledger_ranges import LedgerRanges
from bookie_server.core.records import Add, ExplicitLac, Fence, Tombstone
from bookie_server.reads.lac_watch import LacWatch
from bookie_server.wire.record import parse_run
from tests.doubles.records import records

LONG_MS = 60_000


@dataclass
class Known:
    """What a storage knows, as far as a watch asks."""

    ledgers: dict[int, LedgerHandleState] = field(default_factory=dict)
    tombstones: LedgerRanges = field(default_factory=LedgerRanges)


def add_of(ledger_id: int) -> Add:
    return Add(parse_run(records([b"x"], ledger_id=ledger_id)))


async def begun(watch: LacWatch, ledger_id: int, previous: int) -> asyncio.Task[bool]:
    waiting = asyncio.create_task(watch.wait(ledger_id, previous, LONG_MS))
    await asyncio.sleep(0)
    return waiting


async def test_a_waiter_is_released_by_a_lac_above_the_one_it_knows() -> None:
    known = Known({7: LedgerHandleState(last_add_confirmed=3)})
    watch = LacWatch(known)
    behind, abreast = await begun(watch, 7, 2), await begun(watch, 7, 3)
    assert await behind

    watch.on_applied([add_of(7)])
    known.ledgers[7].last_add_confirmed = 4
    watch.on_applied([add_of(8)])  # another ledger's
    await asyncio.sleep(0)
    assert not abreast.done()

    watch.on_applied([ExplicitLac(7, b"")])
    assert await abreast
    assert watch.waiter_count == 0


@pytest.mark.parametrize("end", ["is_fenced", "is_limbo", "deleted"])
async def test_where_no_news_can_come_nobody_waits(end: str) -> None:
    known = Known({7: LedgerHandleState(), 30: LedgerHandleState()})
    watch = LacWatch(known)
    waiting, elsewhere = await begun(watch, 7, -1), await begun(watch, 30, -1)

    if end == "deleted":
        known.tombstones.add(5, 9)
        watch.on_applied([Tombstone(5, 9)])
    else:
        setattr(known.ledgers[7], end, True)
        watch.on_applied([Fence(7)])

    assert await waiting
    assert await watch.wait(7, -1, LONG_MS)
    assert not elsewhere.done()
    watch.close()
    assert await elsewhere


@pytest.mark.conformance("D10")
async def test_a_waiter_that_is_over_or_cancelled_leaves_no_trace() -> None:
    watch = LacWatch(Known())
    assert await watch.wait(7, -1, timeout_ms=1)
    cancelled = await begun(watch, 7, -1)
    other = await begun(watch, 7, -1)
    assert watch.waiter_count == 2

    cancelled.cancel()
    await asyncio.gather(cancelled, return_exceptions=True)
    assert watch.waiter_count == 1
    watch.close()
    await other

    assert watch.waiter_count == 0
    assert watch._waiting == {}
    assert await watch.wait(7, -1, LONG_MS)  # after the end nobody waits


async def test_more_waiters_than_allowed_are_told_to_come_again() -> None:
    watch = LacWatch(Known({8: LedgerHandleState(last_add_confirmed=0)}), waiters_max=2)
    waiting = [await begun(watch, 7, -1) for _ in range(2)]

    assert not await watch.wait(7, -1, LONG_MS)
    assert await watch.wait(8, -1, LONG_MS)  # news takes no room

    watch.close()
    assert await asyncio.gather(*waiting) == [True, True]


class _Compared(int):
    """A LAC that counts how often it is compared with another."""

    comparisons = 0

    def __lt__(self, other: int) -> bool:
        type(self).comparisons += 1
        return int(self) < other


async def test_an_add_looks_at_whom_it_releases_and_not_at_all_who_wait() -> None:
    known = Known({7: LedgerHandleState(last_add_confirmed=3)})
    watch = LacWatch(known)
    far = [await begun(watch, 7, _Compared(1_000 + each)) for each in range(500)]
    near = [await begun(watch, 7, 3) for _ in range(3)]
    _Compared.comparisons = 0

    known.ledgers[7].last_add_confirmed = 4
    for _ in range(100):
        watch.on_applied([add_of(7)])

    assert await asyncio.gather(*near) == [True] * 3
    assert _Compared.comparisons < 200
    assert watch.waiter_count == len(far)
    watch.close()
    assert all(await asyncio.gather(*far))


async def test_ones_that_give_up_are_not_remembered_while_another_goes_on_waiting() -> None:
    watch = LacWatch(Known())
    patient = await begun(watch, 7, -1)

    for _ in range(200):
        hasty = await begun(watch, 7, -1)
        hasty.cancel()
        await asyncio.gather(hasty, return_exceptions=True)

    assert len(watch._waiting[7]._heap) < 50
    watch.close()
    assert await patient
