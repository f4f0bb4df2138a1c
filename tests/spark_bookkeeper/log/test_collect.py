"""Collection takes what dead drivers left, and never what is visible or may become so."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from bookkeeper_metadata.errors import MetadataUnavailableError
from bookkeeper_metadata.store.memory import Fault
from spark_bookkeeper.log.cleaning.collect import Collector
from spark_bookkeeper.log.cleaning.sweep import SweepReport
from spark_bookkeeper.log.errors import CommitRefusedError
from spark_bookkeeper.log.format.epoch import Job, TaskMessage, TokenState, Txn
from spark_bookkeeper.log.format.serde import encode_garbage
from spark_bookkeeper.log.rules.transitions import ChunkNames
from spark_bookkeeper.log.settings import RetentionSettings
from tests.doubles.stores import LoseNth, every_mutation
from tests.spark_bookkeeper.log.world import DAY_MS, LogWorld

JOB = Job.of_batch("b-1")


async def planned(world: LogWorld, log_id: int, job: Job, rows: int = 10) -> list[TaskMessage]:
    epoch = await world.logs.jobs.plan(log_id, "orders", job=job)
    return [await world.write(epoch, job, index, rows=rows) for index in range(2)]


async def test_live_write_is_left_alone_until_the_job_timeout() -> None:
    async def self_killed(world: LogWorld, log_id: int) -> list[TaskMessage]:
        messages = await planned(world, log_id, Job.of_batch("b-2"))
        await world.nodes(log_id).kill(messages[0].epoch.number, world.now_ms)
        return messages

    world = LogWorld()
    log_id = await world.create_log()
    messages = await planned(world, log_id, JOB)

    world.now_ms += 7 * DAY_MS - 1
    early = await world.logs.collector.collect(log_id)
    ledgers = world.ledgers()
    world.now_ms += 1
    late = await world.logs.collector.collect(log_id)

    assert early.tokens_killed == []
    assert len(ledgers) == 2
    assert late.tokens_killed == late.tokens_removed == [messages[0].epoch.number]
    assert world.ledgers() == set()
    with pytest.raises(CommitRefusedError):
        await world.logs.committer.commit(await self_killed(world, log_id), log="orders")


async def test_each_write_says_how_long_it_may_take_whoever_collects(
    world: LogWorld, log_id: int
) -> None:
    patient = world.client(retention=RetentionSettings(job_timeout_ms=30 * DAY_MS))
    epoch = await patient.jobs.plan(log_id, "orders")
    quick = world.client(retention=RetentionSettings(job_timeout_ms=1000))
    hasty = await quick.jobs.plan(log_id, "orders")

    world.now_ms += 1000
    first = await quick.collector.collect(log_id)
    world.now_ms += 29 * DAY_MS
    second = await quick.collector.collect(log_id)

    assert first.tokens_killed == [hasty.number]
    assert second.tokens_killed == []
    assert await world.nodes(log_id).epochs() == [epoch.number]


async def test_an_overwrite_says_how_long_its_garbage_is_kept(world: LogWorld, log_id: int) -> None:
    await world.append(log_id, JOB)
    layer = world.client(retention=RetentionSettings(deleted_ledger_retention_ms=2 * DAY_MS))
    job = Job.of_batch("b-2")
    epoch = await layer.jobs.plan(log_id, "orders", is_overwrite=True)
    message = await world.write(epoch, job)
    await layer.sweeper.after_commit(await layer.committer.commit([message], log="orders"))

    world.now_ms += 2 * DAY_MS - 1
    early = await world.logs.collector.collect(log_id)
    world.now_ms += 1
    late = await world.logs.collector.collect(log_id)

    assert early.ledgers_deleted == []
    assert len(late.ledgers_deleted) == 2


async def test_zombie_driver_of_a_stored_batch_is_collected_at_once(
    world: LogWorld, log_id: int
) -> None:
    zombie = await planned(world, log_id, Job.of_stream("q", 0))
    # The later batch of the same query ends the zombie's chance to commit.
    await world.append(log_id, Job.of_stream("q", 1))

    report = await world.logs.collector.collect(log_id)

    assert report.tokens_killed == [zombie[0].epoch.number]
    assert len(world.ledgers()) == 2


async def test_plan_that_never_claimed_is_collected_once_its_batch_is_stored(
    world: LogWorld, log_id: int
) -> None:
    job = Job.of_batch("", Txn("etl", 3))
    idle = await world.logs.jobs.plan(log_id, "orders", job=job)
    waiting = await world.logs.jobs.plan(log_id, "orders", job=Job.of_batch("", Txn("etl", 4)))
    await world.append(log_id, job)

    report = await world.logs.collector.collect(log_id)

    assert report.tokens_killed == [idle.number]
    assert await world.nodes(log_id).epochs() == [waiting.number]


async def test_sweep_leaves_a_live_epoch_alone(world: LogWorld, log_id: int) -> None:
    messages = await planned(world, log_id, JOB)
    nodes = world.nodes(log_id)

    report = SweepReport()
    await world.logs.sweeper.sweep_epoch(nodes, messages[0].epoch.number, report)

    assert report == SweepReport()
    assert len(world.ledgers()) == 2
    await world.logs.committer.commit(messages, log="orders")


async def test_garbage_whose_ledgers_cannot_be_deleted_now_stays(
    world: LogWorld, log_id: int
) -> None:
    await world.append(log_id, JOB)
    await world.append(log_id, Job.of_batch("b-2"), is_overwrite=True)
    world.now_ms += DAY_MS
    world.delete_failure = MetadataUnavailableError("zk:2181", "down")

    failed = await world.logs.collector.collect(log_id)
    world.delete_failure = None
    done = await world.logs.collector.collect(log_id)

    assert failed.garbage_removed == []
    assert len(done.garbage_removed) == 1
    assert len(world.ledgers()) == 2


async def test_committed_token_of_a_dead_driver_goes_after_the_timeout_with_its_losers(
    world: LogWorld, log_id: int
) -> None:
    messages = await planned(world, log_id, JOB)
    await world.write(messages[0].epoch, JOB, 0, attempt=9)  # Speculation's loser.
    await world.logs.committer.commit(messages, log="orders")

    early = await world.logs.collector.collect(log_id)
    world.now_ms += 7 * DAY_MS
    late = await world.logs.collector.collect(log_id)

    assert early.tokens_removed == []
    assert late.tokens_removed == [messages[0].epoch.number]
    assert late.ledgers_deleted == [3]
    assert world.ledgers() == {item.ledger_id for item in await world.visible(log_id)}


async def test_dry_run_reports_and_changes_nothing(world: LogWorld, log_id: int) -> None:
    await world.append(log_id, JOB)
    await world.append(log_id, Job.of_batch("b-2"), is_overwrite=True)
    messages = await planned(world, log_id, Job.of_batch("b-3"))
    world.now_ms += 7 * DAY_MS
    ledgers = world.ledgers()

    dry = await world.logs.collector.collect(log_id, is_dry_run=True)
    kept = world.ledgers()
    token = await world.nodes(log_id).token(messages[0].epoch.number)
    real = await world.logs.collector.collect(log_id)

    assert kept == ledgers
    assert token is not None
    assert token.token.state is TokenState.LIVE
    assert dry.tokens_killed == real.tokens_killed
    assert sorted(dry.ledgers_deleted) == sorted(real.ledgers_deleted)
    assert dry.garbage_removed == real.garbage_removed


async def test_overwritten_ranges_stay_readable_for_the_retention(
    world: LogWorld, log_id: int
) -> None:
    await world.append(log_id, JOB)
    old = {item.ledger_id for item in await world.visible(log_id)}
    await world.append(log_id, Job.of_batch("b-2"), is_overwrite=True)

    world.now_ms += 3_600_000 - 1
    await world.logs.collector.collect(log_id)
    kept = world.ledgers()
    world.now_ms += 1
    await world.logs.collector.collect(log_id)

    assert old < kept
    assert not old & world.ledgers()


async def test_ledger_named_by_two_garbage_entries_goes_with_the_second(
    world: LogWorld, log_id: int
) -> None:
    await world.append(log_id, JOB)
    overwrite = await world.append(log_id, Job.of_batch("b-2"), is_overwrite=True)
    nodes = world.nodes(log_id)
    garbage = await nodes.garbage(overwrite.epoch.number)
    assert garbage is not None
    younger = replace(garbage, dropped_ms=world.now_ms + DAY_MS)
    await world.store.create(nodes.tree.garbage_entry(999), encode_garbage(younger))

    world.now_ms += DAY_MS
    first = await world.logs.collector.collect(log_id)
    between = world.ledgers()
    world.now_ms += DAY_MS
    second = await world.logs.collector.collect(log_id)

    assert first.garbage_removed == [overwrite.epoch.number]
    assert first.ledgers_deleted == []
    assert len(between) == 4
    assert second.garbage_removed == [999]
    assert len(world.ledgers()) == 2


async def test_chunks_nobody_references_go_once_their_epoch_ended(
    world: LogWorld, log_id: int
) -> None:
    messages = await planned(world, log_id, JOB)
    nodes = world.nodes(log_id)
    epoch = messages[0].epoch.number
    stray = nodes.tree.chunk(f"{epoch:010d}-{ChunkNames(epoch).take()}")
    await world.store.create(stray, b"\x08\x01")

    live = await world.logs.collector.collect(log_id)
    await world.logs.sweeper.abort(messages, log="orders")
    ended = await world.logs.collector.collect(log_id)

    assert live.chunks_deleted == []
    assert ended.chunks_deleted == [stray.rpartition("/")[2]]
    assert world.tree.children(nodes.tree.chunks) == []


@pytest.mark.slow
async def test_referenced_chunks_and_their_ledgers_survive_every_collection(
    world: LogWorld, log_id: int
) -> None:
    await world.append(log_id, JOB, partitions=4_000)
    nodes = world.nodes(log_id)
    chunks = world.tree.children(nodes.tree.chunks)
    assert chunks

    world.now_ms += 8 * DAY_MS
    report = await world.logs.collector.collect(log_id)
    await world.append(log_id, Job.of_batch("b-2"), is_overwrite=True)
    await world.logs.collector.collect(log_id)
    kept = world.tree.children(nodes.tree.chunks)
    world.now_ms += DAY_MS
    await world.logs.collector.collect(log_id)

    assert report.chunks_deleted == []
    assert report.ledgers_deleted == []
    assert kept == chunks
    assert world.tree.children(nodes.tree.chunks) == []
    assert len(world.ledgers()) == 2


async def test_ledger_that_cannot_be_deleted_now_is_found_again(
    world: LogWorld, log_id: int
) -> None:
    messages = await planned(world, log_id, JOB)
    world.delete_failure = MetadataUnavailableError("zk:2181", "down")

    report = await world.logs.sweeper.abort(messages, log="orders")
    indexed = await world.nodes(log_id).job_epochs("b-1")
    world.delete_failure = None
    later = await world.logs.collector.collect(log_id)

    assert sorted(report.ledgers_left) == [1, 2]
    assert indexed == [messages[0].epoch.number]
    assert sorted(later.ledgers_deleted) == [1, 2]
    assert world.ledgers() == set()
    assert await world.nodes(log_id).epochs() == []


@pytest.mark.parametrize("fault", Fault)
async def test_sweep_never_fails_a_commit_and_collection_ends_what_it_left(fault: Fault) -> None:
    async def once(lose: LoseNth) -> None:
        world = LogWorld()
        log_id = await world.create_log()
        messages = await planned(world, log_id, JOB)
        await world.write(messages[0].epoch, JOB, 0, attempt=9)
        summary = await world.logs.committer.commit(messages, log="orders")
        logs = world.client(fault=lose)

        await logs.sweeper.after_commit(summary)
        world.now_ms += 7 * DAY_MS
        await world.logs.collector.collect(log_id)

        assert world.ledgers() == summary.ledger_ids
        assert await world.nodes(log_id).epochs() == []

    assert await every_mutation(once, fault) > 3


async def test_two_collections_at_once_lose_nothing_visible_and_leave_nothing(
    world: LogWorld, log_id: int
) -> None:
    await world.append(log_id, JOB)
    await world.append(log_id, Job.of_batch("b-2"), is_overwrite=True)
    await planned(world, log_id, Job.of_batch("b-3"))
    world.now_ms += 7 * DAY_MS

    collectors: list[Collector] = [world.client().collector for _ in range(3)]
    await asyncio.gather(*(collector.collect(log_id) for collector in collectors))
    await world.logs.collector.collect(log_id)

    assert world.ledgers() == {item.ledger_id for item in await world.visible(log_id)}
    assert await world.nodes(log_id).epochs() == []
    assert await world.nodes(log_id).garbage_epochs() == []


def test_all_defects_of_retention_are_told_at_once() -> None:
    with pytest.raises(ValueError, match=r"deleted_ledger.*job_timeout.*concurrency"):
        RetentionSettings(deleted_ledger_retention_ms=-1, job_timeout_ms=0, concurrency_max=0)
