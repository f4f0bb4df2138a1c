"""Optimize on a log: the same rows in fewer ledgers, whoever else is at the log and whatever is lost."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

import pytest

from bookkeeper_metadata.errors import (
    MetadataConflictError,
    MetadataUnavailableError,
    NoSuchLedgerError,
)
from bookkeeper_metadata.foundation.errors import BookKeeperError
from bookkeeper_metadata.store.memory import Fault
from spark_bookkeeper.log.cleaning import optimize
from spark_bookkeeper.log.cleaning.optimize import (
    OPTIMIZE_TIMEOUT_MS,
    Instalment,
    Optimized,
    Rewritten,
)
from spark_bookkeeper.log.cleaning.sweep import SweepReport
from spark_bookkeeper.log.errors import CommitRefusedError, EpochFencedError
from spark_bookkeeper.log.format.epoch import Job, LedgerWritten, TokenState
from spark_bookkeeper.log.format.model import Retention
from spark_bookkeeper.log.format.runs import Run, Runs
from spark_bookkeeper.log.layer import LogLayer
from spark_bookkeeper.log.reading.view import LogView
from spark_bookkeeper.log.rules.grouping import GroupLimits
from spark_bookkeeper.log.rules.rewriting import rewritten
from spark_bookkeeper.log.settings import RetentionSettings
from tests.doubles.stores import LoseNth, ScriptedStore, every_mutation
from tests.spark_bookkeeper.log.world import DAY_MS, LogWorld

LIMITS = GroupLimits(target_bytes=8_000, ranges_min=3)


async def planned(
    world: LogWorld, layer: LogLayer | None = None, limits: GroupLimits = LIMITS
) -> Instalment:
    found = await (layer or world.logs).optimizer.plan(world.log_id, "orders", limits)
    assert found is not None
    return found


async def written(
    world: LogWorld, instalment: Instalment, layer: LogLayer | None = None
) -> list[Rewritten]:
    """What tasks make of the groups: a ledger each."""
    optimizer, made = (layer or world.logs).optimizer, []
    for number, group in enumerate(instalment.groups):
        ledger_id = await world.create_ledger(optimizer.claim(instalment, number, 1))
        rows, size = (sum(getattr(item, of) for item in group) for of in ("rows", "size_bytes"))
        ledger = LedgerWritten(ledger_id, 5, rows, size, group[0].schema_id)
        made.append(Rewritten(number, (rewritten(group, ledger),)))
    return made


async def optimized(world: LogWorld, **how: Any) -> Optimized:
    instalment = await planned(world, **how)
    return await world.logs.optimizer.commit(instalment, await written(world, instalment))


async def append_small(world: LogWorld, commits: int) -> None:
    for number in range(commits):
        world.now_ms += 1
        await world.append(Job.of_batch(f"{world.now_ms} {number}"))


async def check_clean(world: LogWorld) -> None:
    """Once everything is collected only what is visible is left, and nothing half done."""
    for _ in range(2):
        world.now_ms += 8 * DAY_MS
        await world.collect()
    assert world.ledgers() == await world.visible_ledgers()
    nodes = world.nodes()
    assert await nodes.epochs() == await nodes.garbage_epochs() == []
    levels = await nodes.levels_below((await world.head()).chunks)
    assert world.chunks() == sorted({ref.name for level in levels for ref in level})


@pytest.mark.parametrize("is_spilled", [False, True])
async def test_small_ranges_become_few_and_old_ledgers_garbage(
    world: LogWorld, is_spilled: bool, request: pytest.FixtureRequest
) -> None:
    if is_spilled:
        request.getfixturevalue("small_chunks")
    await append_small(world, 30)
    before, old = await world.head(), world.ledgers()

    result = await optimized(world)

    head = await world.head()
    kept = ("base_row", "next_row", "overwritten_row", "last_commit_ms", "schema_id")
    assert [getattr(head, name) for name in kept] == [getattr(before, name) for name in kept]
    assert await world.rows() == 600
    assert result.rows == 10 * result.ranges_before
    assert result.ranges_before - result.ranges_after == 60 - len(await world.visible())
    assert result.groups >= 5
    assert (result.given_up, result.swept.ledgers_deleted) == (0, [])
    assert await world.nodes().epochs() == []
    assert old < world.ledgers()
    world.now_ms += 3_600_000
    await world.collect()
    assert world.ledgers() == await world.visible_ledgers()
    await check_clean(world)


async def test_what_is_optimized_is_left_alone_until_more_comes(world: LogWorld) -> None:
    await append_small(world, 20)
    await optimized(world)

    for _ in range(4):
        found = await world.logs.optimizer.plan(world.log_id, "orders", LIMITS)
        if found is None:
            break
        await world.logs.optimizer.commit(found, await written(world, found))
    else:
        pytest.fail("it never ends")
    await append_small(world, 20)
    assert (await optimized(world)).groups >= 3


async def test_retention_keeps_groups_short(world: LogWorld) -> None:
    for _ in range(20):
        world.now_ms += DAY_MS
        await append_small(world, 1)
    retention = Retention(time_ms=20 * DAY_MS)
    await world.logs.change_retention(world.log_id, "orders", lambda _: retention)

    for group in (await planned(world)).groups:
        assert group[-1].commit_ms - group[0].commit_ms <= 2 * DAY_MS


async def test_instalments_of_one_run_leave_no_group_between_them(
    world: LogWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group that lay on both sides of where the next instalment begins was left for another run."""
    monkeypatch.setattr(optimize, "INSTALMENT_GROUPS_MAX", 1)
    await append_small(world, 15)
    row, groups = 0, 0
    while True:
        found = await world.logs.optimizer.plan(world.log_id, "orders", LIMITS, row)
        if found is None:
            break
        groups += (await world.logs.optimizer.commit(found, await written(world, found))).groups
        row = found.next_row

    assert groups == 4
    assert len(await world.visible()) == 4


async def test_groups_whose_task_failed_stay_as_they_are(world: LogWorld) -> None:
    await append_small(world, 20)
    instalment = await planned(world)
    made = await written(world, instalment)
    lost = {item.ledger_id for item in made[1].made}

    result = await world.logs.optimizer.commit(instalment, [made[0], *made[2:]])

    assert (result.groups, result.given_up) == (len(made) - 1, 1)
    visible = await world.visible()
    assert set(instalment.groups[1]) <= set(visible)
    assert set(result.swept.ledgers_deleted) == lost
    await check_clean(world)


async def test_an_instalment_without_any_result_leaves_nothing(world: LogWorld) -> None:
    await append_small(world, 20)
    before, ledgers = await world.head(), world.ledgers()
    instalment = await planned(world)
    await written(world, instalment)

    result = await world.logs.optimizer.commit(instalment, [])

    assert (result.groups, result.given_up) == (0, len(instalment.groups))
    assert (await world.head(), world.ledgers()) == (before, ledgers)
    assert await world.nodes().epochs() == []


async def test_what_was_overwritten_or_truncated_meanwhile_is_given_up(world: LogWorld) -> None:
    await append_small(world, 20)
    instalment = await planned(world)
    made = await written(world, instalment)
    await world.logs.truncate(world.log_id, "orders", instalment.groups[0][0].next_row)

    result = await world.logs.optimizer.commit(instalment, made)

    assert (result.groups, result.given_up) == (len(made) - 1, 1)
    assert await world.rows() == 390
    again = await planned(world, limits=GroupLimits(target_bytes=10**6, ranges_min=2))
    made = await written(world, again)
    await world.append(Job.of_batch("all"), 1, is_overwrite=True)
    assert (await world.logs.optimizer.commit(again, made)).groups == 0
    assert await world.rows() == 10
    await check_clean(world)


async def test_an_overwrite_planned_before_is_no_conflict(world: LogWorld) -> None:
    await append_small(world, 20)
    messages = await world.plan_and_write(Job.of_batch("all"), 1, is_overwrite=True)
    await optimized(world)

    await world.commit(messages)

    assert await world.rows() == 10
    await check_clean(world)


async def test_appends_go_on_and_stay(world: LogWorld, small_chunks: None) -> None:
    await append_small(world, 20)
    store = ScriptedStore(world.tree)
    layer = world.client(store)
    instalment = await planned(world)
    made = await written(world, instalment)
    came: list[str] = []

    async def append_first(operation: str, path: str) -> None:
        if operation == "multi" and len(came) < 5:
            came.append(path)
            await append_small(world, 2)

    store.before = append_first
    result = await layer.optimizer.commit(instalment, made)

    assert len(came) == 5
    assert result.groups >= len(made) - 1
    assert await world.rows() == 600
    await check_clean(world)


async def test_a_log_that_always_moves_is_left_alone(
    world: LogWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(optimize, "COMMIT_ATTEMPTS_MAX", 3)
    await append_small(world, 20)
    store = ScriptedStore(world.tree)
    layer = world.client(store)
    instalment = await planned(world)
    made = await written(world, instalment)

    async def append_first(operation: str, path: str) -> None:
        if operation == "multi":
            await append_small(world, 1)

    store.before = append_first
    with pytest.raises(MetadataConflictError):
        await layer.optimizer.commit(instalment, made)

    assert world.ledgers() == await world.visible_ledgers()
    assert await world.nodes().epochs() == []


async def test_one_that_was_given_up_writes_and_commits_nothing(world: LogWorld) -> None:
    await append_small(world, 20)
    instalment = await planned(world)
    made = await written(world, instalment)
    assert await world.logs.optimizer.others(world.log_id, "orders") == [instalment.epoch.number]
    world.now_ms += OPTIMIZE_TIMEOUT_MS - 1
    await world.collect()
    assert await world.token_state(instalment.epoch) is TokenState.LIVE
    world.now_ms += 1
    await world.collect()

    assert await world.logs.optimizer.others(world.log_id, "orders") == []
    with pytest.raises(CommitRefusedError):
        await world.logs.optimizer.commit(instalment, made)
    with pytest.raises(EpochFencedError):
        await world.create_ledger(world.logs.optimizer.claim(instalment, 0, 2))
    await check_clean(world)


async def test_two_at_once_exchange_each_group_once(world: LogWorld) -> None:
    await append_small(world, 20)
    first, second = await planned(world), await planned(world)
    of_first, of_second = await written(world, first), await written(world, second)

    won = await world.logs.optimizer.commit(first, of_first)
    lost = await world.logs.optimizer.commit(second, of_second)

    assert (won.given_up, lost.groups) == (0, 0)
    assert await world.rows() == 400
    await check_clean(world)


@pytest.mark.parametrize("is_fatal", [False, True])
@pytest.mark.parametrize("fault", list(Fault))
async def test_every_mutation_may_be_lost(fault: Fault, is_fatal: bool, small_chunks: None) -> None:
    async def attempt(lose: LoseNth) -> None:
        world = await LogWorld.with_log()
        await append_small(world, 20)
        layer = world.client(fault=lose)
        with suppress(MetadataUnavailableError, BookKeeperError):
            instalment = await planned(world, layer)
            made = await written(world, instalment, layer)
            await layer.optimizer.commit(instalment, made)
        assert await world.rows() == 400
        for item in await world.visible():
            assert item.ledger_id in world.ledgers()
        await check_clean(world)
        assert await world.rows() == 400

    assert await every_mutation(attempt, fault, is_fatal=is_fatal) >= 3


async def test_giving_up_what_was_committed_takes_nothing(world: LogWorld) -> None:
    await append_small(world, 20)
    instalment = await planned(world)
    store = ScriptedStore(world.tree)
    layer = world.client(store)
    made = await written(world, instalment)
    spent: list[str] = []

    def is_first_multi(operation: str, path: str) -> bool:
        spent.extend([path] * (operation == "multi"))
        return operation == "multi" and len(spent) == 1

    async def arrive_before_the_head_is_read(operation: str, path: str) -> None:
        if operation == "get" and path.endswith("/head"):
            store.arrive()

    store.is_late, store.before = is_first_multi, arrive_before_the_head_is_read
    result = await layer.optimizer.commit(instalment, made)
    report = SweepReport()
    await world.logs.optimizer.give_up(instalment, report)

    assert (result.groups, result.given_up) == (len(made), 0)
    assert report == SweepReport()
    assert {item.ledger_id for one in made for item in one.made} <= world.ledgers()
    await check_clean(world)


@pytest.mark.parametrize("kept_ms", [60_000, 2 * DAY_MS], ids=["shorter", "longer"])
async def test_an_optimize_says_how_long_its_garbage_is_kept(world: LogWorld, kept_ms: int) -> None:
    await append_small(world, 20)
    old = await world.visible_ledgers()
    retention = RetentionSettings(deleted_ledger_retention_ms=kept_ms)
    layer = world.client(retention=retention)
    instalment = await planned(world, layer)
    await layer.optimizer.commit(instalment, await written(world, instalment, layer))

    early = await world.collect_after(kept_ms - 1)
    late = await world.collect_after(1)

    assert early.ledgers_deleted == []
    assert set(late.ledgers_deleted) == old - await world.visible_ledgers()
    assert late.ledgers_deleted


async def test_a_search_by_time_looks_again_if_its_range_was_rewritten_and_collected(
    world: LogWorld,
) -> None:
    await append_small(world, 4)
    second_ms = world.now_ms - 2
    await optimized(world)
    await append_small(world, 4)
    asked: list[int] = []

    async def runs_of(ledger_id: int) -> Runs:
        asked.append(ledger_id)
        if len(asked) == 1:
            await optimized(world, limits=GroupLimits(target_bytes=10**6, ranges_min=2))
            await world.collect_after(3_600_000)
        if ledger_id not in world.ledgers():
            raise NoSuchLedgerError(ledger_id)
        return Runs(tuple(Run(20, second_ms + at, second_ms + at) for at in range(-1, 7)))

    found = await LogView(world.nodes(), runs_of).row_at_time(second_ms)

    assert found.row == 20
    first, second = asked
    assert first not in world.ledgers()
    assert second in await world.visible_ledgers()


@pytest.mark.full
async def test_a_log_of_many_commits_leaves_nothing_behind() -> None:
    """Retention, optimize and collection beside it: after any number of commits as many nodes."""
    world = await LogWorld.with_log()
    retention = Retention(size_bytes=400_000)
    await world.logs.change_retention(world.log_id, "orders", lambda _: retention)
    nodes, commits = [], int(os.environ.get("BOOKKEEPER_COMMITS", "20000"))
    for number in range(commits):
        world.now_ms += 1_000
        await world.append(Job.of_stream("query", number), 1)
        if number % 200 == 199:
            found = await world.logs.optimizer.plan(world.log_id, "orders", LIMITS)
            if found is not None:
                await world.logs.optimizer.commit(found, await written(world, found))
            world.now_ms += 3_600_000
            await world.collect()
            nodes.append(len(list(world.tree.paths())))

    quarter = len(nodes) // 4
    assert max(nodes[-quarter:]) <= 1.1 * max(nodes[quarter : 2 * quarter])
    assert max(nodes) < 1_000
    await check_clean(world)
