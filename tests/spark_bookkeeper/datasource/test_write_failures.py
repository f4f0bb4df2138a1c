"""A batch write in which tasks, commits or messages fail: everything once, or nothing at all."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest

from bookkeeper_metadata.store.memory import Fault
from spark_bookkeeper.datasource.write.plan import WritePlan
from spark_bookkeeper.ledger.errors import LedgerFencedError, NotEnoughBookiesError
from spark_bookkeeper.log.errors import (
    CommitRefusedError,
    EpochFencedError,
    NoSuchLogError,
    TxnAppReusedError,
)
from spark_bookkeeper.log.format.epoch import TaskMessage
from spark_bookkeeper.log.nodes.reads import LogNodes
from tests.doubles.ledger_client import FakeWriter
from tests.doubles.stores import LoseNth
from tests.spark_bookkeeper.datasource.formats import EVERY_FORMAT
from tests.spark_bookkeeper.datasource.rows import SCHEMA, batch, ids
from tests.spark_bookkeeper.datasource.world import FakeSpark


def fail_at(entry: int, world: FakeSpark) -> None:
    """The first ledger cannot take this entry."""

    def hook(ledger_id: int, entry_id: int) -> None:
        if (ledger_id, entry_id) == (0, entry):
            raise NotEnoughBookiesError(3, ())

    world.client.before_append = hook


def attempted(
    world: FakeSpark, first: int = 0, count: int = 5, **options: Any
) -> tuple[WritePlan, TaskMessage]:
    """A write of one task that is done, and not committed."""
    plan = world.plan(SCHEMA, **options)
    return plan, world.attempt(plan, 0, [batch(first, count)])


@EVERY_FORMAT
def test_a_failed_task_shows_nothing_and_a_retry_shows_everything_once(world: FakeSpark) -> None:
    plan = world.plan(SCHEMA, entrybytes="2k", compression="none")
    rows = [batch(0, 500), batch(500, 500)]
    fail_at(3, world)
    with pytest.raises(NotEnoughBookiesError):
        world.attempt(plan, 0, rows)

    retried = world.attempt(plan, 0, rows)

    # The retry has fenced what the failed attempt left open.
    assert world.client.ledgers[0].is_fenced
    world.commit(plan, [retried])
    assert ids(world.read()) == list(range(1000))
    assert list(world.client.ledgers) == [1]


@EVERY_FORMAT
def test_a_speculative_copy_that_lost_is_swept_and_never_seen(world: FakeSpark) -> None:
    plan, loser = attempted(world)
    winner = world.attempt(plan, 0, [batch(0, 5)])
    assert loser.written is not None
    assert not world.client.ledgers[loser.written.ledger_id].is_fenced

    world.commit(plan, [winner])

    assert ids(world.read()) == [0, 1, 2, 3, 4]
    assert loser.written.ledger_id not in world.client.ledgers


@EVERY_FORMAT
def test_a_zombie_that_wakes_up_after_the_commit_cannot_claim(world: FakeSpark) -> None:
    plan, message = attempted(world)
    world.commit(plan, [message])

    with pytest.raises(EpochFencedError):
        world.attempt(plan, 0, [batch(0, 5)])

    assert ids(world.read()) == [0, 1, 2, 3, 4]
    assert len(world.client.ledgers) == 1


@EVERY_FORMAT
def test_a_zombie_in_the_middle_of_its_ledger_is_fenced_by_the_abort(world: FakeSpark) -> None:
    world.write([[]], SCHEMA)
    plan = world.plan(SCHEMA, entrybytes="2k", compression="none")

    def abort_meanwhile(ledger_id: int, entry_id: int) -> None:
        if entry_id == 2:
            world.client.before_append = lambda ledger_id, entry_id: None
            # The sweep fences before it deletes; the fake keeps what a bookie would refuse.
            ledger = world.client.ledgers[ledger_id]
            world.abort(plan, [None])
            assert ledger_id not in world.client.ledgers
            assert ledger.is_fenced

    world.client.before_append = abort_meanwhile
    with pytest.raises(LedgerFencedError):
        world.attempt(plan, 0, [batch(0, 1000)])

    assert world.client.ledgers == {}
    assert world.tokens() == []


@EVERY_FORMAT
def test_a_write_given_up_between_claim_and_ledger_creates_none(
    world: FakeSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = world.plan(SCHEMA)
    create = world.client.create_ledger

    def give_up_first(**arguments: Any) -> FakeWriter:
        world.abort(plan, [None])
        return create(**arguments)

    monkeypatch.setattr(world.client, "create_ledger", give_up_first)
    with pytest.raises(EpochFencedError, match="its token is not live any more"):
        world.attempt(plan, 0, [batch(0, 5)])

    assert world.client.ledgers == {}


@EVERY_FORMAT
def test_an_abort_without_any_message_leaves_nothing_behind(world: FakeSpark) -> None:
    world.write([[]], SCHEMA)
    plan = world.plan(SCHEMA)
    fail_at(0, world)
    with pytest.raises(NotEnoughBookiesError):
        world.attempt(plan, 0, [batch(0, 5)])

    world.abort(plan, [None, None])

    assert world.client.ledgers == {}
    assert world.tokens() == []


@EVERY_FORMAT
def test_a_commit_with_a_message_missing_is_refused(world: FakeSpark) -> None:
    plan, message = attempted(world)

    with pytest.raises(CommitRefusedError, match="1 of 2 tasks sent no commit message"):
        world.commit(plan, [message, None])

    assert ids(world.read()) == []


@EVERY_FORMAT
def test_an_abort_after_a_commit_takes_away_neither_rows_nor_the_log_it_created(
    world: FakeSpark,
) -> None:
    plan, message = attempted(world)
    world.commit(plan, [message])

    # Spark calls this when it believes that the commit failed: its reply was lost.
    world.abort(plan, [message])

    assert ids(world.read()) == [0, 1, 2, 3, 4]


@EVERY_FORMAT
@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize("at", range(12))
def test_any_one_lost_message_of_plan_claim_or_commit_writes_rows_once(
    world: FakeSpark, fault: Fault, at: int
) -> None:
    world.write([[batch(0, 2)]], SCHEMA)
    world.client.store.fault = LoseNth(at, fault)
    plan = None
    try:
        plan = world.plan(SCHEMA)
        world.commit(plan, [world.attempt(plan, 0, [batch(2, 2)])])
        is_done = True
    except Exception:  # noqa: BLE001  whatever it is, Spark would abort
        is_done = False
        world.client.store.fault = None
        if plan is not None:
            world.abort(plan, [None])
    world.client.store.fault = None

    assert ids(world.read()) == ([0, 1, 2, 3] if is_done else [0, 1])


@EVERY_FORMAT
def test_a_transaction_is_committed_once_and_its_repeat_reads_no_input(world: FakeSpark) -> None:
    txn: dict[str, Any] = {"txnappid": "job", "txnversion": "7"}
    world.write([[batch(0, 3)]], SCHEMA, **txn)
    plan = world.plan(SCHEMA, **txn)

    # The second batch would be refused, were it looked at.
    message = world.attempt(plan, 0, [batch(0, 3), pa.record_batch({"wrong": [1]})])
    assert message.is_already_committed
    world.commit(plan, [message])

    assert ids(world.read()) == [0, 1, 2]
    world.write([[batch(3, 1)]], SCHEMA, txnappid="job", txnversion="8")
    assert ids(world.read()) == [0, 1, 2, 3]


@EVERY_FORMAT
def test_a_transaction_id_of_another_query_is_an_error_not_a_skip(world: FakeSpark) -> None:
    txn: dict[str, Any] = {"txnappid": "job", "txnversion": "0"}
    plan = world.plan(SCHEMA, **txn)
    world.commit(plan, [world.attempt(plan, 0, [batch(0, 1)], query_id="first")])
    plan = world.plan(SCHEMA, **txn)
    message = world.attempt(plan, 0, [batch(0, 1)], query_id="second")

    with pytest.raises(TxnAppReusedError):
        world.commit(plan, [message])


@EVERY_FORMAT
def test_a_failed_first_write_takes_the_log_it_created_along(world: FakeSpark) -> None:
    plan = pickle.loads(pickle.dumps(world.plan(SCHEMA)))
    world.attempt(plan, 0, [batch(0, 3)])

    world.abort(plan, [None])

    assert world.client.run(world.session.catalog.names()) == []
    assert world.client.ledgers == {}
    with pytest.raises(NoSuchLogError):
        world.read()


@EVERY_FORMAT
def test_a_failed_write_leaves_a_log_that_was_there_or_that_another_writes(
    world: FakeSpark,
) -> None:
    first, second = world.plan(SCHEMA), world.plan(SCHEMA)

    world.abort(first, [None])
    world.commit(second, [world.attempt(second, 0, [batch(0, 3)])])
    world.abort(world.plan(SCHEMA), [None])
    world.abort(first, [None])

    assert ids(world.read()) == [0, 1, 2]


@EVERY_FORMAT
def test_a_plan_whose_log_a_failed_write_takes_away_creates_it_anew(
    world: FakeSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = world.plan(SCHEMA)
    own = TaskMessage(epoch=first.epoch, job=first.batch_job(""), partition=0, task_attempt_id=0)
    find = world.session.catalog.find

    async def find_and_lose(name: str) -> LogNodes:
        found = await find(name)
        monkeypatch.undo()
        await world.session.sweeper.abort([own], log="orders")
        assert await world.session.catalog.delete_unused("orders", first.epoch.log_id)
        return found

    monkeypatch.setattr(world.session.catalog, "find", find_and_lose)
    second = world.plan(SCHEMA)
    world.commit(second, [world.attempt(second, 0, [batch(0, 3)])])

    assert second.epoch.log_id != first.epoch.log_id
    assert second.has_created_log
    assert ids(world.read()) == [0, 1, 2]
