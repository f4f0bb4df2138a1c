"""Logs come and go whole, whatever replies get lost on the way."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from bookkeeper_metadata.errors import MetadataConflictError, MetadataUnavailableError
from bookkeeper_metadata.store.memory import Fault, MemoryStore
from spark_bookkeeper.log.errors import LogExistsError, LogRecreatedError, NoSuchLogError
from spark_bookkeeper.log.format.epoch import Job
from spark_bookkeeper.log.format.model import LogSettings
from tests.doubles.stores import LoseNth, UnrulyStore, every_mutation
from tests.spark_bookkeeper.log.world import DAY_MS, LogWorld

LOGS_ROOT = "/ledgers-logs"


async def test_created_log_is_empty_and_has_its_settings_and_schema(world: LogWorld) -> None:
    settings = LogSettings(ensemble_size=5, payload_format="raw")

    log_id = await world.logs.catalog.create("orders", settings, b"s0")

    nodes = await world.logs.catalog.open("orders", expected_log_id=log_id)
    head = (await nodes.head()).head
    assert (head.name, head.settings, head.next_row) == ("orders", settings, 0)
    assert await nodes.schemas() == {0: b"s0"}
    assert await world.logs.catalog.names() == ["orders"]


@pytest.mark.parametrize("fault", Fault)
async def test_creation_survives_a_lost_reply_and_makes_one_log(fault: Fault) -> None:
    for nth in (0, 1):
        world = LogWorld()
        logs = world.client(fault=LoseNth(nth, fault))

        log_id = await logs.catalog.create("orders", LogSettings(), b"")

        assert world.tree.children(LOGS_ROOT) == sorted([str(log_id), "names"])
        assert (await world.logs.catalog.open("orders")).log_id == log_id


async def test_of_two_creators_one_succeeds_and_open_or_create_agrees(world: LogWorld) -> None:
    clients = [world.client() for _ in range(4)]

    opened = await asyncio.gather(
        *(logs.catalog.open_or_create("orders", LogSettings(), b"") for logs in clients)
    )

    assert len({nodes.log_id for nodes, _ in opened}) == 1
    assert sum(is_created for _, is_created in opened) == 1
    with pytest.raises(LogExistsError):
        await world.create_log()


async def test_schema_too_large_for_a_node_is_refused() -> None:
    with pytest.raises(ValueError, match="schema"):
        await LogWorld().logs.catalog.create("orders", LogSettings(), b"x" * 600_000)


async def test_deleted_log_is_gone_with_everything_it_had(world: LogWorld, log_id: int) -> None:
    await world.append(log_id, Job.of_stream("q", 0))
    await world.append(log_id, Job.of_batch("b-1"), is_overwrite=True)
    job = Job.of_batch("b-2")
    epoch = await world.logs.jobs.plan(log_id, "orders", job=job)
    await world.write(epoch, job)

    await world.logs.catalog.delete("orders")

    assert world.ledgers() == set()
    assert world.tree.children(LOGS_ROOT) == ["names"]
    with pytest.raises(NoSuchLogError):
        await world.logs.catalog.open("orders")
    with pytest.raises(NoSuchLogError):
        await world.visible(log_id)
    with pytest.raises(NoSuchLogError):
        await world.logs.jobs.plan(log_id, "orders")
    with pytest.raises(NoSuchLogError):
        await world.logs.catalog.delete("orders")


@pytest.mark.parametrize("fault", Fault)
async def test_deletion_interrupted_anywhere_is_continued(fault: Fault) -> None:
    async def once(lose: LoseNth) -> None:
        world = LogWorld()
        log_id = await world.create_log()
        await world.append(log_id, Job.of_stream("q", 0))
        await world.append(log_id, Job.of_batch("b-1"), is_overwrite=True)
        job = Job.of_batch("b-2")
        epoch = await world.logs.jobs.plan(log_id, "orders", job=job)
        await world.write(epoch, job)
        logs = world.client(fault=lose)

        try:
            await logs.catalog.delete("orders")
        except MetadataUnavailableError:
            for begun in await world.logs.catalog.deletions():
                await world.logs.catalog.finish_deletion(begun)

        assert world.ledgers() == set()
        assert world.tree.children(LOGS_ROOT) == ["names"]

    assert await every_mutation(once, fault) > 10


async def test_deletion_without_bookies_says_so_frees_the_name_and_is_finished_later(
    world: LogWorld, log_id: int
) -> None:
    await world.append(log_id, Job.of_stream("q", 0))
    world.delete_failure = MetadataUnavailableError("zk:2181", "down")

    with pytest.raises(MetadataConflictError, match="could not be deleted yet"):
        await world.logs.catalog.delete("orders")
    again = await world.create_log()
    world.delete_failure = None
    assert await world.logs.catalog.deletions() == [log_id]
    finished = await world.logs.catalog.finish_deletion(log_id)

    assert len(finished.ledgers_deleted) == 2
    assert await world.logs.catalog.deletions() == []
    assert world.ledgers() == set()
    assert (await world.logs.catalog.open("orders")).log_id == again


async def test_two_deleters_at_once_leave_nothing_and_fail_at_most_by_absence(
    world: LogWorld, log_id: int
) -> None:
    for number in range(3):
        await world.append(log_id, Job.of_stream("q", number))
    clients = [world.client() for _ in range(2)]

    results = await asyncio.gather(
        *(logs.catalog.delete("orders") for logs in clients), return_exceptions=True
    )

    failed = [found for found in results if isinstance(found, BaseException)]
    assert all(isinstance(found, NoSuchLogError) for found in failed)
    assert len(failed) < 2
    assert world.tree.children(LOGS_ROOT) == ["names"]
    assert world.ledgers() == set()


async def test_log_created_again_is_another_log(world: LogWorld, log_id: int) -> None:
    await world.logs.catalog.delete("orders")
    again = await world.create_log()

    assert again != log_id
    with pytest.raises(LogRecreatedError):
        await world.logs.catalog.open("orders", expected_log_id=log_id)


async def test_transactions_are_listed_and_forgotten(world: LogWorld, log_id: int) -> None:
    await world.append(log_id, Job.of_stream("q/1", 4))

    before = await world.nodes(log_id).txns()
    forgotten = await world.logs.catalog.forget_transaction("orders", "q/1")

    assert before == {"q/1": forgotten}
    assert forgotten is not None
    assert forgotten.version == 4
    assert await world.nodes(log_id).txns() == {}
    assert await world.logs.catalog.forget_transaction("orders", "q/1") is None


@pytest.mark.parametrize("fault", [None, *Fault])
async def test_a_log_never_used_is_deleted_whole_whatever_replies_get_lost(
    fault: Fault | None,
) -> None:
    async def once(nth: int) -> bool:
        world = LogWorld()
        log_id = await world.create_log()
        lose = None if fault is None else LoseNth(nth, fault)
        logs = world.client(MemoryStore(world.tree, fault=lose))

        try:
            assert await logs.catalog.delete_unused("orders", log_id)
        except MetadataUnavailableError:
            for begun in await world.logs.catalog.deletions():
                await world.logs.catalog.finish_deletion(begun)

        assert world.tree.children(LOGS_ROOT) == ["names"]
        assert await world.logs.catalog.names() == []
        return lose is not None and lose.has_struck

    nth = 0
    while await once(nth):
        nth += 1
    assert fault is None or nth > 10


async def test_a_log_in_use_is_not_deleted_as_unused() -> None:
    async def is_kept(world: LogWorld, log_id: int) -> bool:
        is_deleted = await world.logs.catalog.delete_unused("orders", log_id)
        assert (await world.logs.catalog.open("orders")).log_id == log_id
        return not is_deleted

    # committed to, also without rows
    world = LogWorld()
    log_id = await world.create_log()
    await world.append(log_id, Job.of_stream("q", 0))
    assert await is_kept(world, log_id)

    # another write has drawn its token, and commits
    world = LogWorld()
    log_id = await world.create_log()
    job = Job.of_batch("b-1")
    epoch = await world.logs.jobs.plan(log_id, "orders", job=job)
    assert await is_kept(world, log_id)
    message = await world.write(epoch, job)
    assert await is_kept(world, log_id)
    await world.logs.committer.commit([message], log="orders")
    assert await is_kept(world, log_id)

    # a consumer has said that it reads
    world = LogWorld()
    log_id = await world.create_log()
    await world.logs.consumers(log_id, "orders").advance("audit", 0, DAY_MS)
    assert await is_kept(world, log_id)

    # another log of the same name
    world = LogWorld()
    log_id = await world.create_log()
    await world.logs.catalog.delete("orders")
    again = await world.create_log()
    assert not await world.logs.catalog.delete_unused("orders", log_id)
    assert (await world.logs.catalog.open("orders")).log_id == again


@pytest.mark.parametrize("seed", range(200))
async def test_of_a_write_and_a_deletion_as_unused_one_wins(seed: int) -> None:
    """Either the write has its token and the log stays, or there is no log and it is told so."""
    random = Random(seed)
    world = LogWorld()
    log_id = await world.create_log()
    writer = world.client(UnrulyStore(world.tree, random, late_rate=0.2))
    deleter = world.client(UnrulyStore(world.tree, random, late_rate=0.2))

    planned, deleted = await asyncio.gather(
        writer.jobs.plan(log_id, "orders"),
        deleter.catalog.delete_unused("orders", log_id),
        return_exceptions=True,
    )

    if isinstance(planned, BaseException):
        assert isinstance(planned, NoSuchLogError)
        assert deleted is True
        assert world.tree.children(LOGS_ROOT) == ["names"]
    else:
        assert deleted is False
        assert (await world.logs.catalog.open("orders")).log_id == log_id
        assert await world.nodes(log_id).epochs() == [planned.number]
