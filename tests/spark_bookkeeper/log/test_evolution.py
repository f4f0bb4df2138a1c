"""Columns added by a commit: with its rows or not at all, whoever else commits meanwhile.

A schema here is its columns' letters; the log layer takes them for bytes.
"""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from bookkeeper_metadata.foundation.errors import BookKeeperError
from bookkeeper_metadata.store.memory import Fault
from spark_bookkeeper.log.commits.commit import CommitOutcome, CommitSummary
from spark_bookkeeper.log.errors import CommitRefusedError, LogConflictError, SchemaConflictError
from spark_bookkeeper.log.format.epoch import Job, PlannedSchema, TaskMessage
from tests.doubles.stores import LoseNth, UnrulyStore, every_mutation
from tests.spark_bookkeeper.log.world import DAY_MS, LogSession, LogWorld, message_of

STREAM = Job.of_stream("query-1", 0)


def covers(newest: bytes, own: bytes) -> bool:
    return set(newest) >= set(own)


@pytest.fixture
async def world() -> LogWorld:
    return await LogWorld.with_log(schema=b"a")


async def ready(
    session: LogSession, adds: bytes = b"", *, job: Job = STREAM, is_overwrite: bool = False
) -> list[TaskMessage]:
    """Messages of a write whose rows have what the log has now, and ``adds``."""
    schema_id = (await session.head()).schema_id
    stored = await session.nodes().schema(schema_id)
    assert stored is not None
    evolved = bytes([*stored, *(c for c in adds if c not in stored)])
    planned = PlannedSchema(schema_id, evolved if evolved != stored else None)
    return await session.plan_and_write(job, is_overwrite=is_overwrite, schema=planned)


async def commit(session: LogSession, messages: list[TaskMessage]) -> CommitSummary:
    return await session.commit(messages, is_swept=True, covers=covers)


async def check(world: LogWorld) -> None:
    """What always holds: every range's schema is there, and the newest has all their columns."""
    schemas = await world.nodes().schemas()
    newest = schemas[(await world.head()).schema_id]
    assert {item.schema_id for item in await world.visible()} <= set(schemas)
    assert all(covers(newest, schemas[number]) for number in schemas)


async def test_a_schema_comes_with_the_rows_that_have_it(world: LogWorld) -> None:
    messages = await ready(world, b"b")
    epoch = messages[0].epoch
    assert (await world.head()).schema_id == 0
    assert await world.nodes().schemas() == {0: b"a"}

    await commit(world, messages)

    assert epoch.schema_id == epoch.number + 1
    assert (await world.head()).schema_id == epoch.schema_id
    assert await world.nodes().schemas() == {0: b"a", epoch.schema_id: b"ab"}
    assert {item.schema_id for item in await world.visible()} == {epoch.schema_id}


@pytest.mark.parametrize("fault", Fault)
async def test_rows_and_schema_come_once_whichever_reply_is_lost(fault: Fault) -> None:
    async def once(lose: LoseNth) -> None:
        world = await LogWorld.with_log(schema=b"a")
        session = world.session(fault=lose)
        messages = await ready(session, b"b")

        summary = await commit(session, messages)
        await world.collect_after(8 * DAY_MS)

        newest = messages[0].epoch.schema_id
        assert summary.outcome is CommitOutcome.COMMITTED
        assert await world.rows() == 20
        assert await world.nodes().schemas() == {0: b"a", newest: b"ab"}
        assert (await world.head()).schema_id == newest
        assert await world.nodes().epochs() == []

    assert await every_mutation(once, fault) > 8


async def test_an_append_planned_before_the_columns_came_keeps_its_older_schema(
    world: LogWorld,
) -> None:
    plain = await ready(world, job=Job.of_batch("plain"))
    evolving = await ready(world, b"b", job=Job.of_batch("evolving"))
    await commit(world, evolving)

    await commit(world, plain)

    newest = evolving[0].epoch.schema_id
    assert (await world.head()).schema_id == newest
    assert [item.schema_id for item in await world.visible()] == [newest, newest, 0, 0]


async def test_the_schema_the_columns_were_compared_with_is_the_rows_schema(
    world: LogWorld,
) -> None:
    compared = (await world.head()).schema_id
    await commit(world, await ready(world, b"b"))

    assert (await world.plan(schema=PlannedSchema(compared))).schema_id == compared


@pytest.mark.parametrize(("others", "goes_on"), [(b"b", True), (b"bc", True), (b"c", False)])
async def test_of_two_that_add_columns_the_second_goes_on_if_its_own_are_there(
    world: LogWorld, others: bytes, goes_on: bool
) -> None:
    second = await ready(world, b"b", job=Job.of_batch("second"))
    first = await ready(world, others, job=Job.of_batch("first"))
    await commit(world, first)
    newest = first[0].epoch.schema_id

    if goes_on:
        await commit(world, second)
    else:
        with pytest.raises(SchemaConflictError, match=f"found_schema_id={newest}"):
            await commit(world, second)
        await world.abort(second)

    assert (await world.head()).schema_id == newest
    assert (second[0].epoch.schema_id in await world.nodes().schemas()) is goes_on
    assert len(await world.visible()) == (4 if goes_on else 2)
    assert len(world.ledgers()) == (4 if goes_on else 2)
    await check(world)


async def test_a_replay_of_a_batch_that_added_columns_adds_nothing(world: LogWorld) -> None:
    zombie = await ready(world, b"b")
    await commit(world, await ready(world, b"b"))
    again = await ready(world, b"b")
    before = (await world.nodes().schemas(), await world.visible())

    summary = await commit(world, again)

    assert summary.outcome is CommitOutcome.REPLAYED
    assert again[0].epoch.evolved_from is None
    replay = await world.session().commit(zombie, covers=covers)
    assert replay.outcome is CommitOutcome.REPLAYED
    assert (await world.nodes().schemas(), await world.visible()) == before


async def test_an_aborted_write_leaves_no_schema(world: LogWorld) -> None:
    messages = await ready(world, b"b")

    await world.abort(messages)
    with pytest.raises(CommitRefusedError):
        await commit(world, messages)

    assert await world.nodes().schemas() == {0: b"a"}
    assert (await world.head()).schema_id == 0


async def test_an_overwrite_adds_columns_and_conflicts_as_any_overwrite(world: LogWorld) -> None:
    await commit(world, await ready(world))
    late = await ready(world, b"c", job=Job.of_batch("late"), is_overwrite=True)
    first = await ready(world, b"b", job=Job.of_batch("one"), is_overwrite=True)

    await commit(world, first)
    with pytest.raises(LogConflictError):
        await commit(world, late)

    newest = first[0].epoch.schema_id
    assert {item.schema_id for item in await world.visible()} == {newest}
    await check(world)


async def test_an_overwrite_planned_before_columns_came_without_rows_conflicts(
    world: LogWorld,
) -> None:
    await commit(world, await ready(world))
    late = await ready(world, job=Job.of_batch("late"), is_overwrite=True)
    evolving = Job.of_batch("evolving")
    epoch = await world.plan(evolving, schema=PlannedSchema(0, b"ab"))
    await commit(world, [message_of(epoch, evolving)])

    with pytest.raises(LogConflictError):
        await commit(world, late)

    assert (await world.head()).schema_id == epoch.schema_id
    assert await world.rows() == 20
    await check(world)


async def test_a_write_without_rows_adds_its_columns(world: LogWorld) -> None:
    epoch = await world.plan(schema=PlannedSchema(0, b"ab"))

    await commit(world, [message_of(epoch, STREAM)])

    assert await world.nodes().schemas() == {0: b"a", epoch.schema_id: b"ab"}


def test_a_schema_too_large_for_a_node_is_no_plan() -> None:
    with pytest.raises(ValueError, match=r"a schema has 1\.\.524288 bytes, not 524289"):
        PlannedSchema(0, bytes(512 * 1024 + 1))


async def test_a_deleted_log_leaves_no_schema(world: LogWorld) -> None:
    await commit(world, await ready(world, b"b"))
    await ready(world, b"c", job=Job.of_batch("never"))

    await world.logs.catalog.delete("orders")

    assert world.tree.node(world.nodes().tree.root, 0) is None


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60))
async def test_schedules_of_many_writers_keep_ranges_and_schemas_together(seed: int) -> None:
    async def writer(world: LogWorld, number: int) -> int:
        random = Random(seed * 100 + number)
        store = UnrulyStore(world.tree, random, late_rate=0.2)
        mine = world.session(store)
        committed = 0
        for batch in range(3):
            adds = bytes(random.choices(b"bcdef", k=random.randrange(3)))
            job = Job.of_stream(f"query-{number}", batch)
            while True:
                try:
                    await mine.nodes().sync()
                    await commit(mine, await ready(mine, adds, job=job))
                except BookKeeperError:
                    continue  # As a stream does: run the batch again.
                committed += 1
                break
        while store.late:
            await asyncio.gather(*store.late)
        return committed

    world = await LogWorld.with_log(seed, b"a")

    committed = await asyncio.gather(*(writer(world, number) for number in range(4)))

    await world.collect_after(8 * DAY_MS)
    assert sum(committed) == 12
    assert len(await world.visible()) == 24
    assert world.ledgers() == await world.visible_ledgers()
    await check(world)
