"""An open log says what was committed before the question, also by a session that lags behind."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from spark_bookkeeper.log.format.epoch import Job, LedgerWritten, Txn
from spark_bookkeeper.log.format.position import Start
from spark_bookkeeper.log.handle import Log
from tests.doubles.stores import StandingStill
from tests.spark_bookkeeper.log.tail_world import NAME, TailWorld, values
from tests.spark_bookkeeper.log.world import message_of


async def ranges_of(log: Log) -> list[int]:
    return [each.rows for each in await log.ledgers()]


ASKED: dict[str, tuple[Callable[[Log], Awaitable[object]], object]] = {
    "rows counted": (Log.row_count, 5),
    "ranges": (ranges_of, [2, 3]),
    "transactions": (Log.transactions, {"app": 4}),
    "truncated": (lambda log: log.truncate(5), 5),
}
"""What is asked, and the answer once both commits are known."""


@pytest.mark.parametrize("asked", ASKED)
async def test_a_session_that_lags_knows_what_was_committed_before_it_was_asked(
    tail: TailWorld, asked: str
) -> None:
    ask, expected = ASKED[asked]
    session = StandingStill(tail.tree)
    log = tail.another(store=session).log()
    async with await tail.client.writer() as writer:
        await writer.append_many(values(0, 2))
    await log.row_count()
    await session.stop()
    layer = tail.client.layer
    epoch = await layer.jobs.plan(tail.log_id, NAME)
    job = Job.of_batch("", Txn("app", 4))
    message = message_of(epoch, job, written=LedgerWritten(77, 0, 3, 50))
    await layer.committer.commit([message], log=NAME)

    assert await ask(log) == expected


@pytest.mark.parametrize("start", ["earliest", 0, 1])
async def test_a_reader_whose_session_lags_has_the_rows_committed_before_it_began(
    tail: TailWorld, start: Start
) -> None:
    session = StandingStill(tail.tree)
    log = tail.another(store=session).log()
    async with await tail.client.writer() as writer:
        await writer.append_many(values(0, 2))
    await session.stop()
    async with await tail.client.writer() as writer:
        await writer.append_many(values(2, 3))

    expected = values(0, 5)[start if isinstance(start, int) else 0 :]
    assert [bytes(entry.payload) async for _, entry in log.reader(start)] == expected
