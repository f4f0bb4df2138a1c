"""Logs come and go whole, whatever replies get lost on the way."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from bookkeeper_metadata.errors import MetadataConflictError, MetadataUnavailableError
from bookkeeper_metadata.store.memory import Fault
from spark_bookkeeper.log.errors import LogExistsError, LogRecreatedError, NoSuchLogError
from spark_bookkeeper.log.format.epoch import Job
from spark_bookkeeper.log.format.model import LogSettings
from tests.doubles.stores import LaggingStore, LoseNth, UnrulyStore, every_mutation
from tests.spark_bookkeeper.log.world import DAY_MS, LogWorld

LOGS_ROOT = "/ledgers-logs"


async def ready_to_delete(world: LogWorld) -> None:
    """A log with rows, garbage, and a write under way."""
    await world.append(Job.of_stream("q", 0))
    await world.append(Job.of_batch("b-1"), is_overwrite=True)
    await world.plan_and_write(Job.of_batch("b-2"), 1)


def assert_nothing_left(world: LogWorld) -> None:
    assert world.ledgers() == set()
    assert world.tree.children(LOGS_ROOT) == ["names"]


async def test_created_log_is_empty_and_has_its_settings_and_schema() -> None:
    settings, catalog = LogSettings(ensemble_size=5, payload_format="raw"), LogWorld().logs.catalog

    log_id = await catalog.create("orders", settings, b"s0")

    nodes = await catalog.open("orders", expected_log_id=log_id)
    head = (await nodes.head()).head
    assert (head.name, head.settings, head.next_row) == ("orders", settings, 0)
    assert await nodes.schemas() == {0: b"s0"}
    assert await catalog.names() == ["orders"]


async def test_a_session_that_lags_behind_the_creation_lists_the_log(world: LogWorld) -> None:
    behind = world.client(LaggingStore(world.tree, LOGS_ROOT))

    assert await behind.catalog.names() == ["orders"]


@pytest.mark.parametrize("fault", Fault)
async def test_creation_survives_a_lost_reply_and_makes_one_log(fault: Fault) -> None:
    for nth in (0, 1):
        world = LogWorld()
        logs = world.client(fault=LoseNth(nth, fault))

        log_id = await logs.catalog.create("orders", LogSettings(), b"")

        assert world.tree.children(LOGS_ROOT) == sorted([str(log_id), "names"])
        assert (await world.logs.catalog.open("orders")).log_id == log_id


async def test_of_two_creators_one_succeeds_and_open_or_create_agrees() -> None:
    world = LogWorld()

    opened = await asyncio.gather(
        *(world.client().catalog.open_or_create("orders", LogSettings(), b"") for _ in range(4))
    )

    assert len({nodes.log_id for nodes, _ in opened}) == 1
    assert sum(is_created for _, is_created in opened) == 1
    with pytest.raises(LogExistsError):
        await world.create_log()


async def test_schema_too_large_for_a_node_is_refused() -> None:
    with pytest.raises(ValueError, match="schema"):
        await LogWorld.with_log(schema=b"x" * 600_000)


async def test_deleted_log_is_gone_with_everything_it_had(world: LogWorld) -> None:
    await ready_to_delete(world)
    catalog = world.logs.catalog

    await catalog.delete("orders")

    assert_nothing_left(world)
    for asked in (catalog.open("orders"), world.visible(), world.plan(), catalog.delete("orders")):
        with pytest.raises(NoSuchLogError):
            await asked


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("is_used", [True, False])
async def test_deletion_interrupted_anywhere_is_continued(fault: Fault, is_used: bool) -> None:
    async def once(lose: LoseNth) -> None:
        world = await LogWorld.with_log()
        sound, disturbed = world.logs.catalog, world.client(fault=lose).catalog

        try:
            if is_used:
                await ready_to_delete(world)
                await disturbed.delete("orders")
            else:
                assert await disturbed.delete_unused("orders", world.log_id)
        except MetadataUnavailableError:
            for begun in await sound.deletions():
                await sound.finish_deletion(begun)

        assert_nothing_left(world)
        assert await sound.names() == []

    assert await every_mutation(once, fault) > 10


async def test_deletion_without_bookies_says_so_frees_the_name_and_is_finished_later(
    world: LogWorld,
) -> None:
    await world.append(Job.of_stream("q", 0))
    catalog, begun = world.logs.catalog, world.log_id
    world.delete_failure = MetadataUnavailableError("zk:2181", "down")

    with pytest.raises(MetadataConflictError, match="could not be deleted yet"):
        await catalog.delete("orders")
    again = await world.create_log()
    world.delete_failure = None
    assert await catalog.deletions() == [begun]
    finished = await catalog.finish_deletion(begun)

    assert len(finished.ledgers_deleted) == 2
    assert await catalog.deletions() == []
    assert world.ledgers() == set()
    assert (await catalog.open("orders")).log_id == again


async def test_two_deleters_at_once_leave_nothing_and_fail_at_most_by_absence(
    world: LogWorld,
) -> None:
    for number in range(3):
        await world.append(Job.of_stream("q", number))

    results = await asyncio.gather(
        *(world.client().catalog.delete("orders") for _ in range(2)), return_exceptions=True
    )

    failed = [found for found in results if isinstance(found, BaseException)]
    assert all(isinstance(found, NoSuchLogError) for found in failed)
    assert len(failed) < 2
    assert_nothing_left(world)


async def test_log_created_again_is_another_log(world: LogWorld) -> None:
    before = world.log_id
    await world.logs.catalog.delete("orders")

    assert await world.create_log() != before
    with pytest.raises(LogRecreatedError):
        await world.logs.catalog.open("orders", expected_log_id=before)


async def test_transactions_are_listed_and_forgotten(world: LogWorld) -> None:
    await world.append(Job.of_stream("q/1", 4))

    before = await world.nodes().txns()
    forgotten = await world.logs.catalog.forget_transaction("orders", "q/1")

    assert before == {"q/1": forgotten}
    assert forgotten is not None
    assert forgotten.version == 4
    assert await world.nodes().txns() == {}
    assert await world.logs.catalog.forget_transaction("orders", "q/1") is None


@pytest.mark.parametrize("use", ["commit", "plan", "consumer"])
async def test_a_log_in_use_is_not_deleted_as_unused(world: LogWorld, use: str) -> None:
    async def assert_kept() -> None:
        assert not await world.logs.catalog.delete_unused("orders", world.log_id)
        assert (await world.logs.catalog.open("orders")).log_id == world.log_id

    if use == "commit":
        await world.append(Job.of_stream("q", 0))
    elif use == "plan":  # Another write has drawn its token, and commits.
        job = Job.of_batch("b-1")
        epoch = await world.plan(job)
        await assert_kept()
        message = await world.write(epoch, job)
        await assert_kept()
        await world.commit([message])
    else:
        await world.logs.consumers(world.log_id, "orders").advance("audit", 0, DAY_MS)
    await assert_kept()


async def test_another_log_of_the_name_is_not_deleted_as_unused(world: LogWorld) -> None:
    unused = world.log_id
    await world.logs.catalog.delete("orders")
    again = await world.create_log()

    assert not await world.logs.catalog.delete_unused("orders", unused)

    assert (await world.logs.catalog.open("orders")).log_id == again


@pytest.mark.parametrize("seed", range(200))
async def test_of_a_write_and_a_deletion_as_unused_one_wins(world: LogWorld, seed: int) -> None:
    """Either the write has its token and the log stays, or there is no log and it is told so."""
    random = Random(seed)
    writer = world.client(UnrulyStore(world.tree, random, late_rate=0.2))
    deleter = world.client(UnrulyStore(world.tree, random, late_rate=0.2))

    planned, deleted = await asyncio.gather(
        writer.jobs.plan(world.log_id, "orders"),
        deleter.catalog.delete_unused("orders", world.log_id),
        return_exceptions=True,
    )

    if isinstance(planned, BaseException):
        assert isinstance(planned, NoSuchLogError)
        assert deleted is True
        assert world.tree.children(LOGS_ROOT) == ["names"]
    else:
        assert deleted is False
        assert (await world.logs.catalog.open("orders")).log_id == world.log_id
        assert await world.nodes().epochs() == [planned.number]
