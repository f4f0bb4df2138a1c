"""LogWriter: positions, rolls, the end, and how much it holds."""

from __future__ import annotations

import asyncio

import pytest

from bookkeeper_metadata.foundation.errors import ClientClosedError
from bookkeeper_metadata.store.memory import Fault
from bookkeeper_metadata.update import READ_BACK_ATTEMPTS_MAX
from spark_bookkeeper.ledger.errors import EntryTooLargeError, NotEnoughBookiesError
from spark_bookkeeper.log.errors import LogPayloadError
from spark_bookkeeper.log.format.model import GarbageReason, LogSettings
from spark_bookkeeper.log.format.position import Position
from spark_bookkeeper.log.settings import LogWriterSettings
from tests.doubles.waits import pass_turns, until
from tests.patience import seconds
from tests.spark_bookkeeper.log.tail_world import TailWorld, values


async def test_appends_return_where_their_rows_stand(tail: TailWorld) -> None:
    writer = await tail.client.writer()

    first = await writer.append(b"a")
    second = writer.append_async(b"b")
    rest = await writer.append_many([b"c", b"d"])

    ledger_id = writer.ledger_id
    assert first == Position(0, ledger_id, 0)
    assert await second == Position(1, ledger_id, 1)
    assert rest == [Position(2, ledger_id, 2), Position(3, ledger_id, 3)]
    assert await writer.append_many([]) == []


async def test_a_closed_writer_has_recorded_its_ledger_and_left_the_log_free(
    tail: TailWorld,
) -> None:
    async with await tail.client.writer() as writer:
        await writer.append_many(values(0, 3))

    head = await tail.head()
    (item,) = head.ranges
    assert head.open_ledger is None
    assert head.next_row == 3
    assert (item.ledger_id, item.first_entry, item.last_entry) == (writer.ledger_id, 0, 2)
    assert (item.first_row, item.rows, item.size_bytes) == (0, 3, 9)
    assert await tail.nodes().epochs() == []
    assert await tail.rows() == values(0, 3)
    await writer.close()
    with pytest.raises(ClientClosedError):
        await writer.append(b"late")


async def test_a_full_ledger_is_followed_by_another_and_no_batch_notices(tail: TailWorld) -> None:
    writer = await tail.client.writer(roll_entries=4)

    positions = await writer.append_many(values(0, 10))
    await writer.close()

    head = await tail.head()
    assert [position.row for position in positions] == list(range(10))
    assert [position.entry_id for position in positions] == [0, 1, 2, 3, 0, 1, 2, 3, 0, 1]
    assert [item.rows for item in head.ranges] == [4, 4, 2]
    assert len({item.ledger_id for item in head.ranges}) == 3
    assert await tail.rows() == values(0, 10)


async def test_a_ledger_rolls_with_the_entry_that_reaches_its_bytes(tail: TailWorld) -> None:
    writer = await tail.client.writer(roll_bytes=10)

    for _ in range(5):
        await writer.append(b"sixsix")
    await writer.close()

    assert [item.rows for item in (await tail.head()).ranges] == [2, 2, 1]


async def test_a_ledger_with_entries_rolls_when_it_is_old_and_an_empty_one_does_not(
    tail: TailWorld,
) -> None:
    writer = await tail.client.writer(roll_interval_ms=1)
    empty = writer.ledger_id
    await asyncio.sleep(0.005)
    assert writer.ledger_id == empty

    await writer.append(b"x")
    await until(lambda: writer.ledger_id != empty)
    await writer.close()

    assert [item.ledger_id for item in (await tail.head()).ranges] == [empty]


async def test_nothing_goes_to_the_next_ledger_before_the_last_one_is_acknowledged(
    tail: TailWorld,
) -> None:
    writer = await tail.client.writer(roll_entries=2)
    seen: list[int] = []

    futures = [writer.append_async(value) for value in values(0, 9)]
    for future in futures:
        future.add_done_callback(lambda done: seen.append(done.result().row))
    while not all(future.done() for future in futures):
        for item in (await tail.head()).ranges:
            # Recorded, so closed: every entry of it was acknowledged by then.
            assert tail.bookies.ledgers[item.ledger_id].acknowledged == 2
        await asyncio.sleep(0)
    await writer.flush()
    await asyncio.sleep(0)  # what was called for the last one runs next

    assert seen == list(range(9))
    assert len(tail.tree.open_ledgers()) == 1


async def test_a_full_ledger_is_not_ended_while_an_entry_of_it_is_in_flight(
    tail: TailWorld,
) -> None:
    writer = await tail.client.writer(roll_entries=2)
    tail.bookies.is_answering.clear()
    before = await tail.head()

    futures = [writer.append_async(value) for value in values(0, 3)]
    await pass_turns(500)
    assert await tail.head() == before
    assert not any(ledger.is_fenced for ledger in tail.bookies.ledgers.values())
    tail.bookies.is_answering.set()

    assert [position.row for position in await asyncio.gather(*futures)] == [0, 1, 2]


async def test_nothing_follows_a_full_ledger_whose_last_entry_failed(tail: TailWorld) -> None:
    writer = await tail.client.writer(roll_entries=2)
    only = writer.ledger_id
    tail.bookies.is_answering.clear()
    futures = [writer.append_async(value) for value in values(0, 3)]

    failure = NotEnoughBookiesError(1, ())
    writer._ledger.appender.abandon(failure)
    tail.bookies.is_answering.set()

    results = await asyncio.gather(*futures, return_exceptions=True)
    assert results == [failure] * 3
    await writer.close()
    assert await tail.ledger_ids() == {only}
    assert (await tail.head()).open_ledger is None


async def test_a_writer_that_rolled_without_hearing_of_it_knows_its_own_ledger(
    tail: TailWorld,
) -> None:
    # Lost: the reply of the roll's multi, and every answer about what became of it.
    losses = [Fault.LOST_REPLY, *[Fault.LOST_REQUEST] * READ_BACK_ATTEMPTS_MAX]
    client = tail.another()
    writer = await client.writer(roll_entries=2)
    await writer.append(b"v-0")

    def lose(operation: str, _path: str) -> Fault | None:
        has_begun = losses[:1] != [Fault.LOST_REPLY]
        return losses.pop(0) if losses and (has_begun or operation == "multi") else None

    client.store.fault = lose
    await writer.append_many(values(1, 3))
    await writer.close()

    assert losses == []
    assert await tail.rows() == values(0, 4)
    # The ledger it had not heard of was empty, and is garbage.
    assert len(await tail.nodes().garbage_epochs()) >= 1


async def test_a_writer_without_appends_leaves_an_empty_ledger_to_the_garbage(
    tail: TailWorld,
) -> None:
    writer = await tail.client.writer()
    await writer.close()

    nodes = tail.nodes()
    (epoch,) = await nodes.garbage_epochs()
    garbage = await nodes.garbage(epoch)
    assert garbage is not None
    assert garbage.reason is GarbageReason.EMPTY_TAIL
    assert [item.ledger_id for item in garbage.ranges] == [writer.ledger_id]
    assert (await tail.head()).ranges == ()

    tail.now_ms += 3_600_000
    await tail.client.collect()
    assert await tail.ledger_ids() == set()
    assert await nodes.garbage_epochs() == []


async def test_a_log_of_arrow_entries_has_no_writer_or_reader_of_single_values() -> None:
    tail = await TailWorld.with_log(settings=LogSettings())
    with pytest.raises(LogPayloadError, match="payload_format=arrow"):
        await tail.client.writer()
    with pytest.raises(LogPayloadError, match="payload_format=arrow"):
        _ = [each async for each in tail.client.log().reader()]

    assert await tail.ledger_ids() == set()
    assert await tail.nodes().epochs() == []


async def test_a_payload_that_is_too_large_is_refused_and_the_writer_goes_on(
    tail: TailWorld,
) -> None:
    async with await tail.client.writer() as writer:
        with pytest.raises(EntryTooLargeError):
            await writer.append_many([b"fits", b"x" * (writer.payload_size_max + 1)])
        assert (await writer.append(b"next")).row == 0


async def test_appends_wait_while_too_much_is_held(tail: TailWorld) -> None:
    writer = await tail.client.writer(max_in_flight_bytes=100, roll_entries=7)
    released: list[int] = []
    writer.on_release = released.append

    async with asyncio.timeout(seconds(10)):
        await asyncio.gather(*(writer.append(b"x" * 60) for _ in range(20)))
        await writer.close()

    assert sum(released) == 20 * 60
    assert len(await tail.rows()) == 20


def test_settings_tell_all_their_defects_at_once() -> None:
    with pytest.raises(ValueError, match=r"roll_entries.*roll_bytes.*max_in_flight_bytes"):
        LogWriterSettings(roll_entries=-1, roll_bytes=-1, max_in_flight_bytes=0)
