"""LogWriter: its ledger is recovered by somebody who does not want the log, and it goes on in another."""

from __future__ import annotations

import asyncio

import pytest

from spark_bookkeeper.log.errors import LogFencedError
from spark_bookkeeper.log.format.position import Position
from spark_bookkeeper.log.writing.leader import Patience
from spark_bookkeeper.log.writing.writer import LogWriter
from tests.doubles.waits import until
from tests.spark_bookkeeper.log.tail_world import TailWorld, values

SOON = {"recovered_ledger_grace_ms": 1}


@pytest.fixture
async def writer(tail: TailWorld) -> LogWriter:
    return await tail.client.writer(**SOON)


async def check(tail: TailWorld, payloads: list[bytes], positions: list[Position]) -> None:
    """Each once, in order, where its writer was told."""
    assert await tail.rows() == payloads
    assert [position.row for position in positions] == list(range(len(payloads)))
    ranges = {each.ledger_id: each for each in (await tail.head()).ranges}
    for position in positions:
        place = ranges[position.ledger_id]
        assert position.row == place.first_row + position.entry_id


async def test_what_is_in_flight_comes_once_and_in_order(
    tail: TailWorld, writer: LogWriter
) -> None:
    payloads, first = values(0, 60), writer.ledger_id
    appends = [writer.append_async(payload) for payload in payloads]
    await appends[20]

    await tail.another().fence(first)
    positions = [await append for append in appends]

    assert 20 < sum(position.ledger_id == first for position in positions) < 60
    await writer.close()
    await check(tail, payloads, positions)


async def test_a_batch_that_a_recovery_cuts_is_one_batch_to_its_caller(
    tail: TailWorld, writer: LogWriter
) -> None:
    first = writer.ledger_id
    some = await writer.append_many(values(0, 3))
    appending = asyncio.ensure_future(writer.append_many(values(3, 40)))
    await until(lambda: len(tail.bookies.ledgers[first].payloads) >= 20)

    await tail.another().fence(first)
    positions = [*some, *await appending]

    assert {position.ledger_id for position in positions} == {first, writer.ledger_id}
    await writer.close()
    await check(tail, values(0, 43), positions)


async def test_what_a_recovery_found_that_was_not_acknowledged_is_acknowledged_where_it_is(
    tail: TailWorld, writer: LogWriter
) -> None:
    first = writer.ledger_id
    positions = [await writer.append(b"v-0")]
    # It is stored, and the writer has no answer yet.
    append = writer.append_async(b"v-1")
    writer._ledger.appender._acknowledge = lambda _: None  # type: ignore[attr-defined]
    await until(lambda: len(tail.bookies.ledgers[first].payloads) == 2)
    await tail.another().fence(first)
    last = writer.append_async(b"v-2")

    positions += [await append, await last]

    assert [position.ledger_id == first for position in positions] == [True, True, False]
    await writer.close()
    await check(tail, values(0, 3), positions)


async def test_an_idle_writer_notices_by_its_next_append(
    tail: TailWorld, writer: LogWriter
) -> None:
    positions = [await writer.append(b"v-0")]
    for number in range(1, 4):
        await tail.another().fence(writer.ledger_id)
        positions.append(await writer.append(b"v-%d" % number))

    await writer.close()
    await check(tail, values(0, 4), positions)


async def test_a_close_behind_a_recovery_leaves_the_log_to_whoever_comes(
    tail: TailWorld, writer: LogWriter
) -> None:
    appends = [writer.append_async(payload) for payload in values(0, 30)]
    await appends[5]
    await tail.another().fence(writer.ledger_id)

    await writer.close()

    assert (await tail.head()).open_ledger is None
    await check(tail, values(0, 30), [await append for append in appends])


async def test_a_roll_behind_a_recovery_goes_on(tail: TailWorld) -> None:
    writer = await tail.client.writer(roll_entries=10, **SOON)
    appends = [writer.append_async(payload) for payload in values(0, 35)]
    for at in (3, 14, 27):
        await appends[at]
        await tail.another().fence(writer.ledger_id)
    positions = [await append for append in appends]

    await writer.close()
    await check(tail, values(0, 35), positions)


async def test_one_who_takes_the_log_over_in_time_has_it(tail: TailWorld) -> None:
    writer = await tail.client.writer(recovered_ledger_grace_ms=60_000)
    await writer.append(b"v-0")
    await tail.another().fence(writer.ledger_id)
    waiting = writer.append_async(b"lost")
    await asyncio.sleep(0.05)

    async with await tail.another().writer() as second:
        with pytest.raises(LogFencedError):
            await waiting
        with pytest.raises(LogFencedError):
            await writer.close()
        await second.append(b"v-1")
    assert await tail.rows() == values(0, 2)


async def test_without_a_grace_it_ends(tail: TailWorld) -> None:
    writer = await tail.client.writer(recovered_ledger_grace_ms=0)
    await writer.append(b"v-0")
    await tail.another().fence(writer.ledger_id)

    with pytest.raises(LogFencedError):
        await writer.append(b"lost")

    assert await tail.rows() == [b"v-0"]


async def test_what_is_sent_again_is_held_until_it_is_stored(
    tail: TailWorld, writer: LogWriter
) -> None:
    released: list[int] = []
    writer.on_release = released.append
    appends = [writer.append_async(payload) for payload in values(0, 50)]
    await appends[10]
    await tail.another().fence(writer.ledger_id)
    await asyncio.gather(*appends)
    await writer.close()

    assert sum(released) == sum(map(len, values(0, 50)))
    assert writer._held_bytes == 0


def test_patience_grows_while_it_happens_again_and_again() -> None:
    patience = Patience(2_000)

    graces = [patience.next_s(now) for now in (0, 10, 20, 30, 40, 50, 60, 1_000, 1_010)]

    assert graces == [2, 4, 8, 16, 32, 60, 60, 2, 4]
