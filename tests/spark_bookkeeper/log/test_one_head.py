"""Every answer about a log is that of one head, whenever the head changes while it is put together."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from spark_bookkeeper.log.format.epoch import Job, LedgerWritten
from spark_bookkeeper.log.reading.view import LogView, RowRanges
from tests.doubles.ledgers import InMemoryLedgers
from tests.doubles.stores import ScriptedStore
from tests.spark_bookkeeper.log.tail_world import NAME, Client, TailWorld, values
from tests.spark_bookkeeper.log.world import message_of, shrink_chunks

OPERATIONS_MAX = 100
"""More than any answer takes."""
ROWS = 9


class Opened:
    """What a process can ask of a ledger that its writer has not closed."""

    def __init__(self, ledgers: InMemoryLedgers) -> None:
        self._ledgers = ledgers

    async def read_last_confirmed(self, ledger_id: int) -> int:
        metadata = await self._ledgers.metadata(ledger_id)
        if metadata.is_closed:
            return metadata.last_entry
        return self._ledgers.stored(ledger_id).acknowledged - 1

    async def length(self, ledger_id: int, last_entry: int) -> int:
        return sum(map(len, self._ledgers.stored(ledger_id).payloads[: last_entry + 1]))


async def ranges_of(view: LogView) -> RowRanges:
    return await view.ranges()


QUESTIONS: dict[str, Callable[[LogView], Awaitable[object]]] = {
    "extent": LogView.extent,
    "latest extent": lambda view: view.extent(is_latest=True),
    "ranges": ranges_of,
    "some ranges": lambda view: view.ranges(5, 7),
    "row at a time": lambda view: view.row_at_time(1),
    "row after bytes": lambda view: view.row_after_bytes(5, ROWS, 4),
    "head": LogView.head,
}


async def close(client: Client, world: TailWorld) -> None:
    await client.layer.tail(world.log_id, NAME).close()


async def truncate(client: Client, world: TailWorld) -> None:
    assert await client.log().truncate(4) == 4


async def commit(client: Client, world: TailWorld) -> None:
    """Spark's; it takes the log over first, which is part of the scene."""
    epoch = await client.layer.jobs.plan(world.log_id, NAME)
    message = message_of(epoch, Job.of_batch("job"), written=LedgerWritten(77, 0, 5, 50))
    await client.layer.committer.commit([message], log=NAME)


async def scene(change: object) -> tuple[TailWorld, Client]:
    """A log with chunks, ranges and, unless Spark is to commit, an open ledger; a process to change it."""
    world = await TailWorld.with_log()
    writer = await world.client.writer(roll_entries=2)
    await writer.append_many(values(0, ROWS))
    assert (await world.head()).chunks
    if change is commit:
        await writer.close()
    return world, world.another()


async def asked(
    question: str, change: Callable[[Client, TailWorld], Awaitable[None]], at: int | None
) -> tuple[object, bool]:
    """The answer when the change comes before operation number ``at``; whether it came to that."""
    world, other = await scene(change)
    seen, store = 0, ScriptedStore(world.tree)
    client = world.another(store=store)
    view = client.layer.view(world.log_id, NAME, open_ledgers=Opened(client))

    async def before(_operation: str, _path: str) -> None:
        nonlocal seen
        seen += 1
        if seen - 1 == at:
            await change(other, world)

    store.before = before
    if at == OPERATIONS_MAX:
        await change(other, world)
    return await QUESTIONS[question](view), seen > (at or 0)


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("change", [close, truncate, commit], ids=lambda each: str(each.__name__))
async def test_an_answer_is_that_of_the_head_before_a_change_or_behind_it(
    monkeypatch: pytest.MonkeyPatch,
    question: str,
    change: Callable[[Client, TailWorld], Awaitable[None]],
) -> None:
    shrink_chunks(monkeypatch, inline=60, chunk=120, refs=4, fold=2)
    before, _ = await asked(question, change, None)
    behind, _ = await asked(question, change, OPERATIONS_MAX)

    for at in range(OPERATIONS_MAX):
        answer, has_come_to_that = await asked(question, change, at)
        if not has_come_to_that:
            break
        assert answer in (before, behind), at
    else:
        raise AssertionError("it never ends")
