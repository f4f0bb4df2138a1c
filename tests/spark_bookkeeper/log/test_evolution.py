"""Columns added by a commit: with its rows or not at all, whoever else commits meanwhile.

A schema here is its columns' letters; the log layer takes them for bytes.
"""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from bookkeeper_metadata.foundation.errors import BookKeeperError
from bookkeeper_metadata.store.memory import Fault, MemoryStore
from spark_bookkeeper.log.commits.commit import CommitOutcome, CommitSummary
from spark_bookkeeper.log.errors import CommitRefusedError, LogConflictError, SchemaConflictError
from spark_bookkeeper.log.format.epoch import Epoch, Job, LedgerWritten, PlannedSchema, TaskMessage
from spark_bookkeeper.log.format.model import LogSettings
from spark_bookkeeper.log.nodes.reads import LogNodes
from tests.doubles.stores import LoseNth, UnrulyStore, every_mutation
from tests.spark_bookkeeper.log.world import LogWorld, message_of

STREAM = Job.of_stream("query-1", 0)


def covers(newest: bytes, own: bytes) -> bool:
    return set(newest) >= set(own)


async def make_log(world: LogWorld) -> LogNodes:
    log_id = await world.logs.catalog.create("orders", LogSettings(), b"a")
    return world.nodes(log_id)


@pytest.fixture
async def nodes(world: LogWorld) -> LogNodes:
    return await make_log(world)


async def ready(
    world: LogWorld,
    nodes: LogNodes,
    adds: bytes = b"",
    *,
    job: Job = STREAM,
    store: MemoryStore | None = None,
    is_overwrite: bool = False,
) -> list[TaskMessage]:
    """Messages of a write whose rows have what the log has now, and ``adds``."""
    logs = world.client(store) if store is not None else world.logs
    schema_id = (await nodes.head()).head.schema_id
    stored = await nodes.schema(schema_id)
    assert stored is not None
    evolved = bytes([*stored, *(c for c in adds if c not in stored)])
    planned = PlannedSchema(schema_id, evolved if evolved != stored else None)
    epoch = await logs.jobs.plan(
        nodes.log_id, "orders", job=job, is_overwrite=is_overwrite, schema=planned
    )
    return [await task(world, epoch, job, at, store) for at in range(2)]


async def task(
    world: LogWorld, epoch: Epoch, job: Job, partition: int, store: MemoryStore | None = None
) -> TaskMessage:
    message = await world.write(epoch, job, partition, store=store)
    if message.written is None:
        return message
    done = message.written
    written = LedgerWritten(
        done.ledger_id, done.last_entry, done.rows, done.size_bytes, epoch.schema_id
    )
    return message_of(epoch, job, partition, written=written)


async def commit(
    world: LogWorld, messages: list[TaskMessage], store: MemoryStore | None = None
) -> CommitSummary:
    logs = world.client(store) if store is not None else world.logs
    summary = await logs.committer.commit(messages, log="orders", covers=covers)
    await logs.sweeper.after_commit(summary)
    return summary


async def check(nodes: LogNodes, world: LogWorld) -> None:
    """What always holds: every range's schema is there, and the newest has all their columns."""
    schemas = await nodes.schemas()
    newest = schemas[(await nodes.head()).head.schema_id]
    used = {item.schema_id for item in await world.visible(nodes.log_id)}
    assert used <= set(schemas)
    assert all(covers(newest, schemas[number]) for number in schemas)


async def test_a_schema_comes_with_the_rows_that_have_it(world: LogWorld, nodes: LogNodes) -> None:
    messages = await ready(world, nodes, b"b")
    epoch = messages[0].epoch
    assert (await nodes.head()).head.schema_id == 0
    assert await nodes.schemas() == {0: b"a"}

    await commit(world, messages)

    assert epoch.schema_id == epoch.number + 1
    assert (await nodes.head()).head.schema_id == epoch.schema_id
    assert await nodes.schemas() == {0: b"a", epoch.schema_id: b"ab"}
    ranges = await world.visible(nodes.log_id)
    assert {item.schema_id for item in ranges} == {epoch.schema_id}


@pytest.mark.parametrize("fault", Fault)
async def test_rows_and_schema_come_once_whichever_reply_is_lost(fault: Fault) -> None:
    async def once(lose: LoseNth) -> None:
        world = LogWorld()
        nodes = await make_log(world)
        session = MemoryStore(world.tree, fault=lose)
        messages = await ready(world, nodes, b"b", store=session)

        summary = await commit(world, messages, session)
        world.now_ms += 8 * 86_400_000
        await world.logs.collector.collect(nodes.log_id)

        newest = messages[0].epoch.schema_id
        assert summary.outcome is CommitOutcome.COMMITTED
        assert sum(item.rows for item in await world.visible(nodes.log_id)) == 20
        assert await nodes.schemas() == {0: b"a", newest: b"ab"}
        assert (await nodes.head()).head.schema_id == newest
        assert await nodes.epochs() == []

    assert await every_mutation(once, fault) > 8


async def test_an_append_planned_before_the_columns_came_keeps_its_older_schema(
    world: LogWorld, nodes: LogNodes
) -> None:
    plain = await ready(world, nodes, job=Job.of_batch("plain"))
    evolving = await ready(world, nodes, b"b", job=Job.of_batch("evolving"))
    await commit(world, evolving)

    await commit(world, plain)

    newest = evolving[0].epoch.schema_id
    assert (await nodes.head()).head.schema_id == newest
    used = [item.schema_id for item in await world.visible(nodes.log_id)]
    assert used == [newest, newest, 0, 0]


async def test_the_schema_the_columns_were_compared_with_is_the_rows_schema(
    world: LogWorld, nodes: LogNodes
) -> None:
    compared = (await nodes.head()).head.schema_id
    await commit(world, await ready(world, nodes, b"b"))

    epoch = await world.logs.jobs.plan(nodes.log_id, "orders", schema=PlannedSchema(compared))

    assert epoch.schema_id == compared


@pytest.mark.parametrize(("others", "goes_on"), [(b"b", True), (b"bc", True), (b"c", False)])
async def test_of_two_that_add_columns_the_second_goes_on_if_its_own_are_there(
    world: LogWorld, nodes: LogNodes, others: bytes, goes_on: bool
) -> None:
    second = await ready(world, nodes, b"b", job=Job.of_batch("second"))
    first = await ready(world, nodes, others, job=Job.of_batch("first"))
    await commit(world, first)
    newest = first[0].epoch.schema_id

    if goes_on:
        await commit(world, second)
    else:
        with pytest.raises(SchemaConflictError, match=f"found_schema_id={newest}"):
            await commit(world, second)
        await world.logs.sweeper.abort(second, log="orders")

    assert (await nodes.head()).head.schema_id == newest
    assert (second[0].epoch.schema_id in await nodes.schemas()) is goes_on
    assert len(await world.visible(nodes.log_id)) == (4 if goes_on else 2)
    assert len(world.ledgers()) == (4 if goes_on else 2)
    await check(nodes, world)


async def test_a_replay_of_a_batch_that_added_columns_adds_nothing(
    world: LogWorld, nodes: LogNodes
) -> None:
    zombie = await ready(world, nodes, b"b")
    first = await ready(world, nodes, b"b")
    await commit(world, first)
    again = await ready(world, nodes, b"b")
    before = (await nodes.schemas(), await world.visible(nodes.log_id))

    late = world.client()
    summary = await commit(world, again)

    assert summary.outcome is CommitOutcome.REPLAYED
    assert again[0].epoch.evolved_from is None
    replay = await late.committer.commit(zombie, log="orders", covers=covers)
    assert replay.outcome is CommitOutcome.REPLAYED
    assert (await nodes.schemas(), await world.visible(nodes.log_id)) == before


async def test_an_aborted_write_leaves_no_schema(world: LogWorld, nodes: LogNodes) -> None:
    messages = await ready(world, nodes, b"b")

    await world.logs.sweeper.abort(messages, log="orders")
    with pytest.raises(CommitRefusedError):
        await commit(world, messages)

    assert await nodes.schemas() == {0: b"a"}
    assert (await nodes.head()).head.schema_id == 0


async def test_an_overwrite_adds_columns_and_conflicts_as_any_overwrite(
    world: LogWorld, nodes: LogNodes
) -> None:
    await commit(world, await ready(world, nodes))
    late = await ready(world, nodes, b"c", job=Job.of_batch("late"), is_overwrite=True)
    first = await ready(world, nodes, b"b", job=Job.of_batch("one"), is_overwrite=True)

    await commit(world, first)
    with pytest.raises(LogConflictError):
        await commit(world, late)

    assert {item.schema_id for item in await world.visible(nodes.log_id)} == {
        first[0].epoch.schema_id
    }
    await check(nodes, world)


async def test_a_write_without_rows_adds_its_columns(world: LogWorld, nodes: LogNodes) -> None:
    epoch = await world.logs.jobs.plan(nodes.log_id, "orders", schema=PlannedSchema(0, b"ab"))
    message = message_of(epoch, STREAM)

    await commit(world, [message])

    assert await nodes.schemas() == {0: b"a", epoch.schema_id: b"ab"}


def test_a_schema_too_large_for_a_node_is_no_plan() -> None:
    with pytest.raises(ValueError, match=r"a schema has 1\.\.524288 bytes, not 524289"):
        PlannedSchema(0, bytes(512 * 1024 + 1))


async def test_a_deleted_log_leaves_no_schema(world: LogWorld, nodes: LogNodes) -> None:
    await commit(world, await ready(world, nodes, b"b"))
    await ready(world, nodes, b"c", job=Job.of_batch("never"))

    await world.logs.catalog.delete("orders")

    assert world.tree.node(nodes.tree.root, 0) is None


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60))
async def test_schedules_of_many_writers_keep_ranges_and_schemas_together(seed: int) -> None:
    async def writer(world: LogWorld, nodes: LogNodes, number: int) -> int:
        random = Random(seed * 100 + number)
        store = UnrulyStore(world.tree, random, late_rate=0.2)
        mine = LogNodes(store, world.paths, nodes.log_id, "orders")
        committed = 0
        for batch in range(3):
            adds = bytes(random.choices(b"bcdef", k=random.randrange(3)))
            job = Job.of_stream(f"query-{number}", batch)
            while True:
                try:
                    await mine.sync()
                    messages = await ready(world, mine, adds, job=job, store=store)
                    await commit(world, messages, store)
                except BookKeeperError:
                    continue  # As a stream does: run the batch again.
                committed += 1
                break
        while store.late:
            await asyncio.gather(*store.late)
        return committed

    world = LogWorld(seed)
    nodes = await make_log(world)

    committed = await asyncio.gather(*(writer(world, nodes, n) for n in range(4)))

    world.now_ms += 8 * 86_400_000
    await world.logs.collector.collect(nodes.log_id)
    ranges = await world.visible(nodes.log_id)
    assert sum(committed) == 12
    assert len(ranges) == 24
    assert world.ledgers() == {item.ledger_id for item in ranges}
    await check(nodes, world)
