"""How long bookies are tried in vain: what counts, and what does not."""

from __future__ import annotations

import asyncio

from spark_bookkeeper.ledger.pending_adds import TrialLimit
from tests.doubles.virtual_time import on_virtual_time


async def tried(
    limit: TrialLimit, *, change_s: float, silent_s: float, is_replaced: bool = True
) -> bool:
    """One replaces another and does not answer for so long: whether that was the last."""
    await asyncio.sleep(change_s)
    limit.on_changed(is_replaced=is_replaced)
    await asyncio.sleep(silent_s)
    return limit.on_failed()


def test_bookies_that_are_silent_one_after_the_other_reach_it() -> None:
    async def main() -> None:
        limit = TrialLimit(60_000)
        assert not limit.on_failed()
        outcomes = [await tried(limit, change_s=0.01, silent_s=10) for _ in range(6)]
        assert outcomes == [False] * 5 + [True]

    on_virtual_time(main())


def test_what_the_metadata_service_takes_does_not_count() -> None:
    async def main() -> None:
        limit = TrialLimit(60_000)
        assert not limit.on_failed()
        for _ in range(100):
            assert not await tried(limit, change_s=30, silent_s=0.1)

    on_virtual_time(main())


def test_an_acknowledgement_begins_it_anew_and_a_rest_is_none_of_it() -> None:
    async def main() -> None:
        limit = TrialLimit(60_000)
        for _ in range(10):
            assert not limit.on_failed()
            assert not await tried(limit, change_s=0.01, silent_s=50)
            limit.restart()
            await asyncio.sleep(1_000)

    on_virtual_time(main())


def test_where_there_is_none_to_try_nothing_is_tried() -> None:
    async def main() -> None:
        limit = TrialLimit(60_000)
        assert not limit.on_failed()
        assert not await tried(limit, change_s=0.01, silent_s=56, is_replaced=False)
        assert not await tried(limit, change_s=0.01, silent_s=5)

    on_virtual_time(main())
