"""All logs are collected, whatever happens to one of them, by whoever is chosen to."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from bookkeeper_metadata.errors import MetadataUnavailableError
from spark_bookkeeper.log.format.epoch import Job
from spark_bookkeeper.log.format.model import LogSettings
from spark_bookkeeper.log.housekeeping import (
    Collected,
    HousekeepingMeasures,
    collect_all,
    keep_house,
)
from spark_bookkeeper.log.nodes.paths import LogPaths
from tests.spark_bookkeeper.log.world import DAY_MS, ROOT, LogWorld

DOWN = MetadataUnavailableError("zk:2181", "down")


async def overwrite(world: LogWorld) -> set[int]:
    """Make garbage of a ledger of the log, long ago; returns it."""
    await world.append(Job.of_batch("b-1"))
    doomed = world.ledgers()
    await world.append(Job.of_batch("b-2"), is_overwrite=True)
    world.now_ms += DAY_MS
    return doomed


async def test_a_log_that_fails_keeps_none_of_the_others_from_collection(
    world: LogWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.logs.catalog.create("another", LogSettings(), b"schema")
    doomed = await overwrite(world)
    find = world.logs.catalog.find

    async def fails_for_another(name: str) -> object:
        if name == "another":
            raise DOWN
        return await find(name)

    monkeypatch.setattr(world.logs.catalog, "find", fails_for_another)

    collected = await collect_all(world.logs)

    assert collected.failed == {"log another": DOWN}
    assert set(collected.logs["orders"].ledgers_deleted) == doomed
    assert not doomed & world.ledgers()


async def test_nodes_that_nobody_understands_end_no_round(world: LogWorld) -> None:
    """One ended the process that heals, and every one after it."""
    doomed = await overwrite(world)
    paths = LogPaths(ROOT)
    world.tree.create(f"{paths.names}/bad*name", b"5", 0)
    world.tree.create(f"{paths.names}/broken", b"77", 0)
    world.tree.make_parents(f"{paths.root}/77/x")
    world.tree.create(f"{paths.root}/77/head", b"\xff\xff", 0)

    collected = await collect_all(world.logs)

    assert {"log bad*name", "log broken"} <= set(collected.failed)
    assert not doomed & world.ledgers()


async def test_a_dry_run_deletes_nothing(world: LogWorld) -> None:
    doomed = await overwrite(world)

    collected = await collect_all(world.logs, is_dry_run=True)

    assert set(collected.logs["orders"].ledgers_deleted) == doomed
    assert doomed < world.ledgers()


async def rounds(
    world: LogWorld,
    monkeypatch: pytest.MonkeyPatch,
    outcomes: list[Collected | MetadataUnavailableError],
    *,
    interval_ms: int,
    is_chosen: list[bool],
) -> tuple[HousekeepingMeasures, list[float]]:
    """Keep house until all outcomes are used up; returns what was counted, and between rounds which time passed."""
    begun: list[float] = []
    over = asyncio.Event()
    turns = iter(is_chosen)
    loop, slept = asyncio.get_running_loop(), 0.0

    async def collect(layer: object, *, goes_on: object) -> Collected:
        begun.append(slept)
        outcome = outcomes.pop(0)
        if not outcomes:
            over.set()
        if isinstance(outcome, MetadataUnavailableError):
            raise outcome
        return outcome

    real_sleep = asyncio.sleep

    async def sleep(seconds: float) -> None:
        nonlocal slept
        slept += seconds
        await real_sleep(0)

    module = "spark_bookkeeper.log.housekeeping"
    monkeypatch.setattr(f"{module}.collect_all", collect)
    monkeypatch.setattr(f"{module}.asyncio.sleep", sleep)
    monkeypatch.setattr(loop, "time", lambda: slept)
    measures = HousekeepingMeasures()
    task = asyncio.create_task(
        keep_house(world.logs, interval_ms, is_chosen=lambda: next(turns, True), measures=measures)
    )
    await over.wait()
    await real_sleep(0)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    return measures, begun


async def test_a_round_is_made_when_it_is_due(
    world: LogWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    measures, begun = await rounds(
        world,
        monkeypatch,
        [Collected(), Collected(), Collected()],
        interval_ms=60_000,
        is_chosen=[True],
    )

    assert begun == [0, 60, 120]
    assert measures.rounds.count == 3


async def test_one_that_failed_is_tried_again_soon(
    world: LogWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    measures, begun = await rounds(
        world, monkeypatch, [DOWN, Collected()], interval_ms=3_600_000, is_chosen=[True]
    )

    assert begun == [0, 10]
    assert (measures.rounds.count, measures.failures) == (1, 1)


async def test_who_is_not_chosen_collects_nothing(
    world: LogWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, begun = await rounds(
        world,
        monkeypatch,
        [Collected(), Collected()],
        interval_ms=60_000,
        is_chosen=[False, False, True],
    )

    assert begun == [20, 80]


async def test_what_a_round_came_to_is_counted(world: LogWorld) -> None:
    doomed = await overwrite(world)
    measures = HousekeepingMeasures()

    measures.note(0.5, await collect_all(world.logs))

    assert measures.deleted_ledgers == len(doomed)
    assert (measures.rounds.count, measures.rounds.sum_ms) == (1, 500)
    assert measures.failures == 0
