"""LogWriter: who may write beside it or after it, and what the one before learns of that."""

from __future__ import annotations

import asyncio

import pytest

from bookkeeper_metadata.foundation.errors import ClientClosedError
from spark_bookkeeper.ledger.errors import LedgerFencedError, LedgerRecoveryError
from spark_bookkeeper.log.errors import LogFencedError, LogHasWriterError, NoSuchLogError
from spark_bookkeeper.log.format.epoch import Job, LedgerWritten
from tests.spark_bookkeeper.log.tail_world import NAME, TailWorld, values
from tests.spark_bookkeeper.log.world import message_of


async def test_a_second_writer_takes_the_log_and_the_first_learns_it(tail: TailWorld) -> None:
    first = await tail.client.writer()
    await first.append_many(values(0, 2))

    second = await tail.another().writer()
    await second.append(b"second")

    with pytest.raises(LogFencedError) as fenced:
        await first.append(b"lost")
    assert isinstance(fenced.value, LedgerFencedError)
    assert fenced.value.log == NAME
    with pytest.raises(LogFencedError):
        await first.append(b"lost")
    with pytest.raises(LogFencedError):
        await first.close()
    await second.close()
    assert await tail.rows() == [*values(0, 2), b"second"]


async def test_a_writer_that_has_nothing_in_flight_learns_of_a_successor_when_it_closes(
    tail: TailWorld,
) -> None:
    first = await tail.client.writer()
    await first.append(b"1")
    second = await tail.another().writer()

    # The successor closed the first one's ledger exactly where that would close it.
    await first.close()

    head = await tail.head()
    assert head.open_ledger is not None
    assert head.open_ledger.ledger_id == second.ledger_id
    await second.close()


async def test_a_rolling_writer_that_was_followed_gets_the_logs_own_error(tail: TailWorld) -> None:
    first = await tail.client.writer(roll_entries=2)
    await first.append(b"1")
    await tail.another().log().recover()

    with pytest.raises(LogFencedError):
        await first.append_many([b"2", b"3", b"4"])

    assert await tail.rows() == [b"1"]
    assert (await tail.head()).open_ledger is None


@pytest.mark.parametrize("followers", [1, 2])
async def test_a_leader_that_was_followed_fences_nobody_by_its_roll(
    tail: TailWorld, followers: int
) -> None:
    """It closed its ledger where its successor had, and so has not learned of it yet."""
    first = leading = await tail.client.writer()
    await first.append(b"1")
    for _ in range(followers):
        leading = await tail.another().writer()
    await leading.append(b"2")

    with pytest.raises(LogFencedError):
        await first._leader.roll()

    assert not tail.bookies.ledgers[leading.ledger_id].is_fenced
    await leading.append(b"3")
    head = await tail.head()
    assert head.open_ledger is not None
    assert head.open_ledger.ledger_id == leading.ledger_id
    await leading.close()
    assert await tail.rows() == [b"1", b"2", b"3"]


async def test_recover_leaves_the_log_without_writer_and_with_every_acknowledged_row(
    tail: TailWorld,
) -> None:
    writer = await tail.client.writer()
    await writer.append_many(values(0, 5))

    await tail.another().log().recover()
    await tail.another().log().recover()

    assert (await tail.head()).open_ledger is None
    assert await tail.rows() == values(0, 5)


async def test_a_tail_that_cannot_be_decided_stops_the_take_over_and_changes_nothing(
    tail: TailWorld,
) -> None:
    writer = await tail.client.writer()
    tail.bookies.is_undecidable = True
    before = await tail.head()

    # Nothing is known of the ledger, which is not the same as: it is empty.
    with pytest.raises(LedgerRecoveryError):
        await tail.another().writer()
    with pytest.raises(LedgerRecoveryError):
        await tail.another().log().recover()

    assert await tail.head() == before
    assert await tail.nodes().garbage_epochs() == []
    tail.bookies.is_undecidable = False
    async with await tail.another().writer() as second:
        assert second.ledger_id != writer.ledger_id


async def test_an_abandoned_writer_fails_what_waits_and_its_log_can_be_taken_over(
    tail: TailWorld,
) -> None:
    writer = await tail.client.writer(roll_entries=2)
    await writer.append(b"0")
    waiting = [writer.append_async(value) for value in values(1, 5)]

    writer.abandon(ClientClosedError("client"))

    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(result, ClientClosedError) for result in results)
    async with await tail.another().writer() as second:
        await second.append(b"second")
    rows = await tail.rows()
    assert rows[0] == b"0"
    assert rows[-1] == b"second"


async def test_deleting_the_log_fences_its_writer(tail: TailWorld) -> None:
    writer = await tail.client.writer(roll_entries=3)
    await writer.append(b"1")

    await tail.another().layer.catalog.delete(NAME)

    assert await tail.ledger_ids() == set()
    with pytest.raises(LedgerFencedError):
        await writer.append_many([b"2", b"3", b"4"])
    with pytest.raises(NoSuchLogError):
        await tail.client.writer()


async def test_a_spark_write_and_a_writer_exclude_each_other(tail: TailWorld) -> None:
    layer = tail.client.layer
    epoch = await layer.jobs.plan(tail.log_id, NAME)
    message = message_of(epoch, Job.of_batch("job"), written=LedgerWritten(77, 0, 5, 50))

    # A writer that comes between plan and commit: the commit is refused.
    writer = await tail.another().writer()
    await writer.append(b"1")
    with pytest.raises(LogHasWriterError):
        await layer.committer.commit([message], log=NAME)
    # And no plan begins beside it.
    with pytest.raises(LogHasWriterError):
        await layer.jobs.plan(tail.log_id, NAME)

    # Taking over frees the log for the very same commit.
    await layer.tail(tail.log_id, NAME).close()
    await layer.committer.commit([message], log=NAME)
    assert [item.rows for item in (await tail.head()).ranges] == [1, 5]
    with pytest.raises(LogFencedError):
        await writer.append_many([b"2"])

    # The next writer numbers on behind Spark's rows.
    async with await tail.another().writer() as second:
        assert (await second.append(b"x")).row == 6


async def test_a_truncation_does_not_disturb_the_writer(tail: TailWorld) -> None:
    writer = await tail.client.writer(roll_entries=2)
    await writer.append_many(values(0, 5))

    assert await tail.another().log().truncate(4) == 4
    await writer.append_many(values(5, 4))
    await writer.close()

    assert await tail.rows() == values(4, 5)
