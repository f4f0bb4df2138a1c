"""Collection takes what dead drivers left, and never what is visible or may become so."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from bookkeeper_metadata.errors import MetadataUnavailableError
from bookkeeper_metadata.store.memory import Fault
from spark_bookkeeper.log.cleaning.sweep import SweepReport
from spark_bookkeeper.log.commits.commit import CommitSummary
from spark_bookkeeper.log.errors import CommitRefusedError
from spark_bookkeeper.log.format.epoch import Job, TokenState, Txn
from spark_bookkeeper.log.format.serde import encode_garbage
from spark_bookkeeper.log.nodes.paths import sequence_name
from spark_bookkeeper.log.rules.chunks import ChunkNames
from spark_bookkeeper.log.settings import RetentionSettings
from tests.doubles.stores import LoseNth, every_mutation
from tests.spark_bookkeeper.log.world import DAY_MS, LogWorld

JOB = Job.of_batch("b-1")
DOWN = MetadataUnavailableError("zk:2181", "down")


async def append_and_overwrite(world: LogWorld) -> CommitSummary:
    await world.append(JOB)
    return await world.append(Job.of_batch("b-2"), is_overwrite=True)


async def test_live_write_is_left_alone_until_the_job_timeout(world: LogWorld) -> None:
    messages = await world.plan_and_write(JOB)

    early = await world.collect_after(7 * DAY_MS - 1)
    ledgers = world.ledgers()
    late = await world.collect_after(1)

    assert early.tokens_killed == []
    assert len(ledgers) == 2
    assert late.tokens_killed == late.tokens_removed == [messages[0].epoch.number]
    assert world.ledgers() == set()


async def test_a_write_whose_token_was_ended_is_refused(world: LogWorld) -> None:
    messages = await world.plan_and_write(JOB)
    await world.nodes().kill(messages[0].epoch.number, world.now_ms)

    with pytest.raises(CommitRefusedError):
        await world.commit(messages)


async def test_each_write_says_how_long_it_may_take_whoever_collects(world: LogWorld) -> None:
    patient = world.client(retention=RetentionSettings(job_timeout_ms=30 * DAY_MS))
    epoch = await patient.jobs.plan(world.log_id, "orders")
    quick = world.client(retention=RetentionSettings(job_timeout_ms=1000))
    hasty = await quick.jobs.plan(world.log_id, "orders")

    world.now_ms += 1000
    first = await quick.collector.collect(world.log_id)
    world.now_ms += 29 * DAY_MS
    second = await quick.collector.collect(world.log_id)

    assert first.tokens_killed == [hasty.number]
    assert second.tokens_killed == []
    assert await world.nodes().epochs() == [epoch.number]


@pytest.mark.parametrize(
    ("retention", "kept_ms"),
    [(None, 3_600_000), (RetentionSettings(deleted_ledger_retention_ms=2 * DAY_MS), 2 * DAY_MS)],
    ids=["as always", "longer"],
)
async def test_an_overwrite_says_how_long_its_garbage_is_kept(
    world: LogWorld, retention: RetentionSettings | None, kept_ms: int
) -> None:
    await world.append(JOB)
    old = await world.visible_ledgers()
    layer = world.client(retention=retention)
    epoch = await layer.jobs.plan(world.log_id, "orders", is_overwrite=True)
    message = await world.write(epoch, Job.of_batch("b-2"))
    await layer.sweeper.after_commit(await layer.committer.commit([message], log="orders"))

    early = await world.collect_after(kept_ms - 1)
    late = await world.collect_after(1)

    assert early.ledgers_deleted == []
    assert set(late.ledgers_deleted) == old
    assert not old & world.ledgers()


async def test_zombie_driver_of_a_stored_batch_is_collected_at_once(world: LogWorld) -> None:
    zombie = await world.plan_and_write(Job.of_stream("q", 0))
    # The later batch of the same query ends the zombie's chance to commit.
    await world.append(Job.of_stream("q", 1))

    report = await world.collect()

    assert report.tokens_killed == [zombie[0].epoch.number]
    assert len(world.ledgers()) == 2


async def test_plan_that_never_claimed_is_collected_once_its_batch_is_stored(
    world: LogWorld,
) -> None:
    job = Job.of_batch("", Txn("etl", 3))
    idle, waiting = await world.plan(job), await world.plan(Job.of_batch("", Txn("etl", 4)))
    await world.append(job)

    report = await world.collect()

    assert report.tokens_killed == [idle.number]
    assert await world.nodes().epochs() == [waiting.number]


async def test_sweep_leaves_a_live_epoch_alone(world: LogWorld) -> None:
    messages = await world.plan_and_write(JOB)

    report = SweepReport()
    await world.logs.sweeper.sweep_epoch(world.nodes(), messages[0].epoch.number, report)

    assert report == SweepReport()
    assert len(world.ledgers()) == 2
    await world.commit(messages)


async def test_garbage_whose_ledgers_cannot_be_deleted_now_stays(world: LogWorld) -> None:
    await append_and_overwrite(world)
    world.now_ms += DAY_MS
    world.delete_failure = DOWN

    failed = await world.collect()
    world.delete_failure = None
    done = await world.collect()

    assert failed.garbage_removed == []
    assert len(done.garbage_removed) == 1
    assert len(world.ledgers()) == 2


async def test_committed_token_of_a_dead_driver_goes_after_the_timeout_with_its_losers(
    world: LogWorld,
) -> None:
    messages = await world.plan_and_write(JOB)
    await world.write(messages[0].epoch, JOB, 0, attempt=9)  # Speculation's loser.
    await world.commit(messages)

    early = await world.collect()
    late = await world.collect_after(7 * DAY_MS)

    assert early.tokens_removed == []
    assert late.tokens_removed == [messages[0].epoch.number]
    assert late.ledgers_deleted == [3]
    assert world.ledgers() == await world.visible_ledgers()


async def test_dry_run_reports_and_changes_nothing(world: LogWorld) -> None:
    await append_and_overwrite(world)
    messages = await world.plan_and_write(Job.of_batch("b-3"))
    world.now_ms += 7 * DAY_MS
    ledgers = world.ledgers()

    dry = await world.collect(is_dry_run=True)
    assert world.ledgers() == ledgers
    assert await world.token_state(messages[0].epoch) is TokenState.LIVE
    real = await world.collect()

    assert dry.tokens_killed == real.tokens_killed
    assert sorted(dry.ledgers_deleted) == sorted(real.ledgers_deleted)
    assert dry.garbage_removed == real.garbage_removed


async def test_ledger_named_by_two_garbage_entries_goes_with_the_second(world: LogWorld) -> None:
    epoch = (await append_and_overwrite(world)).epoch.number
    nodes = world.nodes()
    garbage = await nodes.garbage(epoch)
    assert garbage is not None
    younger = replace(garbage, dropped_ms=world.now_ms + DAY_MS)
    await world.store.create(nodes.tree.garbage_entry(999), encode_garbage(younger))

    first = await world.collect_after(DAY_MS)
    between = world.ledgers()
    second = await world.collect_after(DAY_MS)

    assert first.garbage_removed == [epoch]
    assert first.ledgers_deleted == []
    assert len(between) == 4
    assert second.garbage_removed == [999]
    assert len(world.ledgers()) == 2


async def test_chunks_nobody_references_go_once_their_epoch_ended(world: LogWorld) -> None:
    messages = await world.plan_and_write(JOB)
    epoch = messages[0].epoch.number
    stray = f"{epoch:010d}-{ChunkNames(epoch).take()}"
    await world.store.create(world.nodes().tree.chunk(stray), b"\x08\x01")

    live = await world.collect()
    await world.abort(messages)
    ended = await world.collect()

    assert live.chunks_deleted == []
    assert ended.chunks_deleted == [stray]
    assert world.chunks() == []


@pytest.mark.slow
async def test_referenced_chunks_and_their_ledgers_survive_every_collection(
    world: LogWorld,
) -> None:
    await world.append(JOB, 4_000)
    chunks = world.chunks()
    assert chunks

    report = await world.collect_after(8 * DAY_MS)
    await world.append(Job.of_batch("b-2"), is_overwrite=True)
    await world.collect()
    kept = world.chunks()
    await world.collect_after(DAY_MS)

    assert report.chunks_deleted == []
    assert report.ledgers_deleted == []
    assert kept == chunks
    assert world.chunks() == []
    assert len(world.ledgers()) == 2


async def test_ledger_that_cannot_be_deleted_now_is_found_again(world: LogWorld) -> None:
    messages = await world.plan_and_write(JOB)
    world.delete_failure = DOWN

    report = await world.abort(messages)
    indexed = await world.nodes().job_epochs("b-1")
    world.delete_failure = None
    later = await world.collect()

    assert sorted(report.ledgers_left) == [1, 2]
    assert indexed == [messages[0].epoch.number]
    assert sorted(later.ledgers_deleted) == [1, 2]
    assert world.ledgers() == set()
    assert await world.nodes().epochs() == []


@pytest.mark.parametrize("fault", Fault)
async def test_sweep_never_fails_a_commit_and_collection_ends_what_it_left(fault: Fault) -> None:
    async def once(lose: LoseNth) -> None:
        world = await LogWorld.with_log()
        messages = await world.plan_and_write(JOB)
        await world.write(messages[0].epoch, JOB, 0, attempt=9)
        summary = await world.commit(messages)

        await world.client(fault=lose).sweeper.after_commit(summary)
        await world.collect_after(7 * DAY_MS)

        assert world.ledgers() == summary.ledger_ids
        assert await world.nodes().epochs() == []

    assert await every_mutation(once, fault) > 3


async def test_two_collections_at_once_lose_nothing_visible_and_leave_nothing(
    world: LogWorld,
) -> None:
    await append_and_overwrite(world)
    await world.plan_and_write(Job.of_batch("b-3"))
    world.now_ms += 7 * DAY_MS

    await asyncio.gather(*(world.session().collect() for _ in range(3)))
    await world.collect()

    assert world.ledgers() == await world.visible_ledgers()
    assert await world.nodes().epochs() == []
    assert await world.nodes().garbage_epochs() == []


def test_all_defects_of_retention_are_told_at_once() -> None:
    with pytest.raises(ValueError, match=r"deleted_ledger.*job_timeout.*concurrency"):
        RetentionSettings(deleted_ledger_retention_ms=-1, job_timeout_ms=0, concurrency_max=0)


@pytest.mark.parametrize(
    "name",
    [
        "notes",
        "1_0",
        "٣",
        "9" * 5_000,
        "a@b",
        "%ff@1",
        "a@" + "9" * 19,
        "a" * 300 + "@1",
        "1-2",
        "1-2-x",
    ],
)
async def test_nodes_that_somebody_made_in_a_log_stop_nothing(world: LogWorld, name: str) -> None:
    """Collection of this log, and with it of all others, ended with an error that is none of ours."""
    await append_and_overwrite(world)
    tree, store = world.nodes().tree, world.nodes().store
    messages = await world.plan_and_write(Job.of_batch("b-3"))
    epoch = messages[0].epoch.number
    jobs = tree.job("x").rpartition("/")[0]
    for folder in (tree.schemas, tree.tokens, tree.token(epoch), jobs, tree.garbage, tree.chunks):
        await store.create(f"{folder}/{name}", b"whatever", make_parents=True)
    # As of a job that claimed the epoch.
    await store.create(f"{jobs}/{name}/{sequence_name(epoch)}", b"", make_parents=True)

    await world.collect_after(0)
    await world.commit(messages)
    late = await world.collect_after(7 * DAY_MS)

    assert late.ledgers_left == []
    assert await world.visible_ledgers() <= world.ledgers()
    assert await world.nodes().epochs() == [epoch], (
        "it is not empty: whose node that is may take it away"
    )
