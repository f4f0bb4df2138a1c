"""Plans and claims: newer plans win, ended ones write nothing."""

from __future__ import annotations

import pickle
from random import Random

import pytest

from bookkeeper_metadata.cluster import initialize
from bookkeeper_metadata.ledgers import ExtraOperations, LedgerStore
from bookkeeper_metadata.store.memory import Fault, MemoryStore
from bookkeeper_metadata.store.operations import Check, Create, Put
from spark_bookkeeper.log.commits.jobs import Claim
from spark_bookkeeper.log.errors import EpochFencedError, NoSuchLogError
from spark_bookkeeper.log.format.epoch import Epoch, Job, TokenState, Txn
from spark_bookkeeper.log.nodes.paths import job_name
from tests.doubles.stores import LoseNth, Script, every_mutation
from tests.spark_bookkeeper.log.world import (
    LogWorld,
    create_metadata,
    create_under,
    message_of,
    settle,
)

JOB = Job.of_stream("query-1", 0)


async def claim(
    world: LogWorld, epoch: Epoch, job: Job = JOB, partition: int = 0, attempt: int = 1
) -> Claim:
    found = await world.logs.jobs.claim(epoch, job, partition=partition, task_attempt_id=attempt)
    assert found is not None
    return found


async def test_later_plans_draw_higher_epochs(world: LogWorld) -> None:
    numbers = [(await world.plan()).number for _ in range(5)]

    assert numbers == sorted(set(numbers))
    assert await world.nodes().epochs() == numbers


@pytest.mark.parametrize("fault", Fault)
async def test_plan_whose_reply_is_lost_draws_another_token(world: LogWorld, fault: Fault) -> None:
    epoch = await world.session(fault=LoseNth(0, fault)).plan()

    left = await world.nodes().epochs()
    assert left[-1] == epoch.number
    assert len(left) == (2 if fault is Fault.LOST_REPLY else 1)


async def test_plan_of_no_log_says_so() -> None:
    with pytest.raises(NoSuchLogError):
        await LogWorld().logs.jobs.plan(77, "orders")


async def test_claim_of_a_stored_transaction_writes_nothing(world: LogWorld) -> None:
    await world.append(JOB)
    epoch = await world.plan()

    found = await world.logs.jobs.claim(epoch, JOB, partition=0, task_attempt_id=5)

    assert found is None
    # It said that it is there before it knew; the replay's commit takes that away again.
    await world.commit([message_of(epoch, JOB, is_skipped=True)], is_swept=True)
    assert world.tree.children(world.nodes().tree.jobs) == []
    assert await world.rows() == 20


async def test_first_claim_of_a_newer_epoch_ends_the_older_and_fences_its_ledgers(
    world: LogWorld,
) -> None:
    older = await world.plan()
    older_claim = await claim(world, older)
    ledger_id = await world.create_ledger(older_claim)

    await claim(world, await world.plan())
    await settle(world.logs)

    assert await world.token_state(older) is TokenState.DEAD
    assert world.fenced == [ledger_id]
    with pytest.raises(EpochFencedError):
        await claim(world, older)
    with pytest.raises(EpochFencedError):
        await world.create_ledger(older_claim)
    assert world.ledgers() == {ledger_id}


async def test_older_plan_that_claims_late_gives_way_to_the_newer_one(world: LogWorld) -> None:
    older, newer = await world.plan(), await world.plan()
    # The newer one cannot end the older, which nothing names yet.
    await claim(world, newer)

    with pytest.raises(EpochFencedError, match="took over"):
        await claim(world, older)

    assert await world.token_state(newer) is TokenState.LIVE


async def test_epochs_of_other_jobs_do_not_fence_each_other(world: LogWorld) -> None:
    first, second = await world.plan(), await world.plan()

    await claim(world, second, Job.of_batch("b-2"))
    found = await claim(world, first, Job.of_batch("b-1"))

    assert await world.create_ledger(found) in world.ledgers()


@pytest.mark.parametrize("end", ["aborted", "committed", "swept"])
async def test_zombie_of_an_ended_epoch_can_neither_claim_nor_create(
    world: LogWorld, end: str
) -> None:
    job = Job.of_batch("b-1")
    epoch = await world.plan(job)
    zombie = await claim(world, epoch, job, partition=1)
    message = await world.write(epoch, job)
    if end == "aborted":
        await world.abort([message])
    else:
        await world.commit([message], is_swept=end == "swept")
    before = world.ledgers()

    with pytest.raises(EpochFencedError):
        await world.create_ledger(zombie)
    with pytest.raises(EpochFencedError):
        await claim(world, epoch, job)

    assert world.ledgers() == before


async def test_attempt_fences_only_earlier_attempts_of_its_own_partition(world: LogWorld) -> None:
    epoch = await world.plan()
    tasks = (0, 3), (0, 7), (0, 9), (1, 4)
    claims = [await claim(world, epoch, JOB, *task) for task in tasks]
    ledgers = [await world.create_ledger(each) for each in claims]

    await world.logs.jobs.fence_predecessors(claims[1])

    assert world.fenced == ledgers[:1]


@pytest.mark.parametrize("fault", Fault)
async def test_claim_survives_a_lost_reply_of_any_mutation(fault: Fault) -> None:
    async def once(lose: LoseNth) -> None:
        world = await LogWorld.with_log()
        older = await world.plan()
        await claim(world, older)
        newer, logs = await world.plan(), world.client(fault=lose)

        assert await logs.jobs.claim(newer, JOB, partition=0, task_attempt_id=1) is not None
        assert await world.token_state(older) is TokenState.DEAD
        # Announced, or no later claim of the job would find it and end it.
        assert await world.nodes().job_epochs(job_name(JOB)) == [older.number, newer.number]

    assert await every_mutation(once, fault) >= 2


async def test_what_accompanies_a_ledger_is_a_check_and_a_child(world: LogWorld) -> None:
    operations = (await claim(world, await world.plan())).extra_operations(42)

    assert [type(operation) for operation in operations] == [Check, Create]


@pytest.mark.parametrize("fault", [None, *Fault])
async def test_ledger_store_creates_a_ledger_only_under_a_live_token(
    world: LogWorld, fault: Fault | None
) -> None:
    await initialize(MemoryStore(world.tree), "/cluster", random=Random(1))
    epoch = await world.plan()
    found = await claim(world, epoch)
    script = Script()
    script.at("multi", 1, lambda: fault)
    ledgers = LedgerStore(MemoryStore(world.tree, fault=script), "/cluster", random=Random(2))

    ledger_id = await create_metadata(ledgers, found)
    await world.nodes().kill(epoch.number, 1)

    children = await world.nodes().token_children(epoch.number)
    assert [child.ledger_id for child in children] == [ledger_id]
    with pytest.raises(EpochFencedError):
        await create_metadata(ledgers, found)
    assert [found_id async for found_id in ledgers.list_ids()] == [ledger_id]


async def test_refusals_that_are_not_the_tokens_pass_unchanged(world: LogWorld) -> None:
    found = await claim(world, await world.plan())

    async def create(extra_operations: ExtraOperations) -> None:
        await world.store.multi([Put("/elsewhere", b"", 0), *extra_operations(1)])

    with pytest.raises(Exception, match="/elsewhere"):
        await create_under(found, create)


def test_jobs_with_a_transaction_are_the_transaction() -> None:
    assert Job.of_batch("a", Txn("etl", 1)) == Job.of_batch("b", Txn("etl", 1))
    assert Job.of_batch("a") != Job.of_batch("b")


def test_epochs_pickle_to_tasks() -> None:
    epoch = Epoch(1, "orders", 2, 3, 4)

    assert pickle.loads(pickle.dumps(epoch)) == epoch
