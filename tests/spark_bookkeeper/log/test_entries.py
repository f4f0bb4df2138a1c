"""LogReader: what it begins with, what it follows, and that it never skips a row."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from bookkeeper_metadata.errors import NoSuchLedgerError
from spark_bookkeeper.ledger.entry import Entry
from spark_bookkeeper.log.errors import DataLossError, NoSuchLogError
from spark_bookkeeper.log.format.position import Position, Start
from spark_bookkeeper.log.reading.reader import LogReader
from tests.doubles.waits import until
from tests.spark_bookkeeper.log.tail_world import FOREVER, NAME, Following, TailWorld, values


async def all_of(reader: LogReader) -> list[bytes]:
    return [bytes(entry.payload) async for _, entry in reader]


async def collect_rows(rows: AsyncIterator[tuple[Position, Entry]], found: list[int]) -> None:
    async for position, _ in rows:
        found.append(position.row)


async def test_a_reader_begins_where_it_is_told_and_ends_with_what_is_confirmed(
    tail: TailWorld,
) -> None:
    writer = await tail.client.writer(roll_entries=3)
    positions = await writer.append_many(values(0, 8))
    log = tail.another().log()
    starts: list[tuple[Start, list[bytes]]] = [
        ("earliest", values(0, 8)),
        ("latest", []),
        (0, values(0, 8)),
        (3, values(3, 5)),
        (7, values(7, 1)),
        (8, []),
        (positions[4], values(4, 4)),
    ]

    for start, expected in starts:
        assert await all_of(log.reader(start)) == expected, start

    for wrong in ("first", -1):
        with pytest.raises(ValueError, match="position"):
            await all_of(log.reader(wrong))


async def test_a_reader_tells_where_another_goes_on(tail: TailWorld) -> None:
    async with await tail.client.writer() as writer:
        await writer.append_many(values(0, 7))
    log = tail.client.log()
    reader = log.reader()

    async for position, _ in reader:
        if position.row == 3:
            break
    await reader.close()

    assert reader.next_row == 4
    assert await all_of(log.reader(reader.next_row)) == values(4, 3)


async def test_a_follower_sees_every_row_once_over_rolls_closes_and_take_overs(
    tail: TailWorld,
) -> None:
    following = Following(tail.another().log().tail("earliest"))
    first = await tail.client.writer(roll_entries=3)
    await first.append_many(values(0, 8))
    await following.has(8)

    second = await tail.another().writer()
    await second.append_many(values(8, 4))
    await following.has(12)
    await second.close()
    third = await tail.another().writer()
    await third.append_many(values(12, 1))
    await following.has(13)

    assert following.rows == values(0, 13)
    assert [position.row for position in following.positions] == list(range(13))
    await following.stop()


async def test_a_follower_from_the_latest_row_sees_only_what_comes(tail: TailWorld) -> None:
    writer = await tail.client.writer()
    await writer.append_many(values(0, 3))
    following = Following(tail.another().log().tail())
    await until(lambda: following.reader.next_row is not None)

    await writer.append_many(values(3, 2))
    await following.has(2)

    assert following.rows == values(3, 2)
    await following.stop()


@pytest.mark.parametrize("is_written", [True, False])
async def test_a_follower_ends_when_nothing_comes_in_time(
    tail: TailWorld, is_written: bool
) -> None:
    writer = await tail.client.writer()
    await writer.append_many(values(0, 3))
    if not is_written:
        await writer.close()

    found = await all_of(tail.client.log().tail("earliest", timeout=0.01))

    assert found == values(0, 3)


async def test_a_follower_may_be_ahead_of_what_is_confirmed_but_not_of_the_log(
    tail: TailWorld,
) -> None:
    writer = await tail.client.writer()
    ahead = Following(tail.another().log().tail(2))
    beyond = Following(tail.another().log().tail(FOREVER))
    await writer.append_many(values(0, 4))
    await ahead.has(2)

    await writer.close()
    await asyncio.wait({beyond.task})

    assert ahead.rows == values(2, 2)
    await ahead.stop()
    with pytest.raises(DataLossError, match=f"wanted_row={FOREVER} first_row=0 next_row=4"):
        beyond.task.result()
    with pytest.raises(DataLossError):
        await all_of(tail.client.log().reader(5))


async def test_a_reader_behind_a_truncation_is_told_and_skips_nothing(tail: TailWorld) -> None:
    writer = await tail.client.writer(roll_entries=2)
    await writer.append_many(values(0, 9))
    log = tail.another().log()
    reader = log.tail("earliest")
    rows = aiter(reader)
    assert (await anext(rows))[0].row == 0

    assert await log.truncate(6) == 6
    tail.now_ms += 3_600_000
    await tail.client.collect()

    # What was on its way already may come; then the gap is an error.
    found: list[int] = []
    with pytest.raises(DataLossError) as lost:
        await collect_rows(rows, found)
    assert found == list(range(1, 1 + len(found)))
    assert lost.value.wanted_row == 1 + len(found) < 6
    assert lost.value.available[0] == 6
    with pytest.raises(DataLossError):
        await all_of(log.reader(5))
    assert await all_of(log.reader(6)) == values(6, 3)


async def test_a_reader_of_a_deleted_log_is_told_so(tail: TailWorld) -> None:
    writer = await tail.client.writer()
    await writer.append(b"1")
    following = Following(tail.another().log().tail("earliest"))
    await following.has(1)

    await tail.another().layer.catalog.delete(NAME)
    await asyncio.wait({following.task})

    with pytest.raises(NoSuchLogError):
        following.task.result()


async def test_a_ledger_that_is_gone_though_the_log_names_it_is_an_error(tail: TailWorld) -> None:
    async with await tail.client.writer() as writer:
        await writer.append(b"1")
    await tail.client.delete(writer.ledger_id)

    with pytest.raises(NoSuchLedgerError):
        await all_of(tail.another().log().reader())


async def test_a_follower_of_an_empty_tail_that_is_collected_goes_on(tail: TailWorld) -> None:
    await tail.client.writer()
    following = Following(tail.another().log().tail("earliest"))
    await until(lambda: following.reader.next_row is not None)

    second = await tail.another().writer()
    tail.now_ms += 3_600_000
    await tail.client.collect()
    await second.append(b"1")
    await following.has(1)

    assert following.rows == [b"1"]
    await following.stop()
