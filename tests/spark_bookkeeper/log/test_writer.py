"""LogWriter: positions, rolls, the end, and who may write beside it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from bookkeeper_metadata.foundation.errors import ClientClosedError
from bookkeeper_metadata.store.memory import Fault
from bookkeeper_metadata.update import READ_BACK_ATTEMPTS_MAX
from spark_bookkeeper.ledger.errors import (
    EntryTooLargeError,
    LedgerFencedError,
    LedgerRecoveryError,
    NotEnoughBookiesError,
)
from spark_bookkeeper.log.errors import (
    LogFencedError,
    LogHasWriterError,
    LogPayloadError,
    NoSuchLogError,
)
from spark_bookkeeper.log.format.epoch import Job, LedgerWritten, TaskMessage
from spark_bookkeeper.log.format.model import GarbageReason, LogSettings
from spark_bookkeeper.log.format.position import Position
from spark_bookkeeper.log.settings import LogWriterSettings
from tests.patience import seconds
from tests.spark_bookkeeper.log.tail_world import NAME, TailWorld, until, values

Scenario = Callable[[TailWorld, int], Awaitable[None]]


def run(scenario: Scenario, settings: LogSettings | None = None) -> None:
    async def main() -> None:
        world = TailWorld()
        await scenario(world, await world.create_log(settings))

    asyncio.run(main())


def test_appends_return_where_their_rows_stand() -> None:
    async def scenario(world: TailWorld, log_id: int) -> None:
        writer = await world.client.writer(log_id)

        first = await writer.append(b"a")
        second = writer.append_async(b"b")
        rest = await writer.append_many([b"c", b"d"])

        ledger_id = writer.ledger_id
        assert first == Position(0, ledger_id, 0)
        assert await second == Position(1, ledger_id, 1)
        assert rest == [Position(2, ledger_id, 2), Position(3, ledger_id, 3)]
        assert await writer.append_many([]) == []

    run(scenario)


def test_a_closed_writer_has_recorded_its_ledger_and_left_the_log_free() -> None:
    async def scenario(world: TailWorld, log_id: int) -> None:
        async with await world.client.writer(log_id) as writer:
            await writer.append_many(values(0, 3))

        head = await world.head(log_id)
        (item,) = head.ranges
        assert head.open_ledger is None
        assert head.next_row == 3
        assert (item.ledger_id, item.first_entry, item.last_entry) == (writer.ledger_id, 0, 2)
        assert (item.first_row, item.rows, item.size_bytes) == (0, 3, 9)
        assert await world.client.layer.nodes(log_id).epochs() == []
        assert await world.rows(log_id) == values(0, 3)
        await writer.close()
        with pytest.raises(ClientClosedError):
            await writer.append(b"late")

    run(scenario)


def test_rows_are_numbered_on_from_writer_to_writer() -> None:
    async def scenario(world: TailWorld, log_id: int) -> None:
        for number in range(3):
            async with await world.client.writer(log_id) as writer:
                position = await writer.append(b"%d" % number)
            assert position.row == number

        assert await world.rows(log_id) == [b"0", b"1", b"2"]

    run(scenario)


def test_a_full_ledger_is_followed_by_another_and_no_batch_notices() -> None:
    async def scenario(world: TailWorld, log_id: int) -> None:
        writer = await world.client.writer(log_id, roll_entries=4)

        positions = await writer.append_many(values(0, 10))
        await writer.close()

        head = await world.head(log_id)
        assert [position.row for position in positions] == list(range(10))
        assert [position.entry_id for position in positions] == [0, 1, 2, 3, 0, 1, 2, 3, 0, 1]
        assert [item.rows for item in head.ranges] == [4, 4, 2]
        assert len({item.ledger_id for item in head.ranges}) == 3
        assert await world.rows(log_id) == values(0, 10)

    run(scenario)


def test_a_ledger_rolls_with_the_entry_that_reaches_its_bytes() -> None:
    async def scenario(world: TailWorld, log_id: int) -> None:
        writer = await world.client.writer(log_id, roll_bytes=10)

        for _ in range(5):
            await writer.append(b"sixsix")
        await writer.close()

        assert [item.rows for item in (await world.head(log_id)).ranges] == [2, 2, 1]

    run(scenario)


def test_a_ledger_with_entries_rolls_when_it_is_old_and_an_empty_one_does_not() -> None:
    async def scenario(world: TailWorld, log_id: int) -> None:
        writer = await world.client.writer(log_id, roll_interval_ms=1)
        empty = writer.ledger_id
        await asyncio.sleep(0.005)
        assert writer.ledger_id == empty

        await writer.append(b"x")
        await until(lambda: writer.ledger_id != empty)
        await writer.close()

        assert [item.ledger_id for item in (await world.head(log_id)).ranges] == [empty]

    run(scenario)


def test_nothing_goes_to_the_next_ledger_before_the_last_one_is_acknowledged() -> None:
    async def scenario(world: TailWorld, log_id: int) -> None:
        writer = await world.client.writer(log_id, roll_entries=2)
        seen: list[int] = []

        futures = [writer.append_async(value) for value in values(0, 9)]
        for future in futures:
            future.add_done_callback(lambda done: seen.append(done.result().row))
        while not all(future.done() for future in futures):
            for item in (await world.head(log_id)).ranges:
                # Recorded, so closed: every entry of it was acknowledged by then.
                assert world.bookies.confirmed[item.ledger_id] == 2
            await asyncio.sleep(0)
        await writer.flush()

        assert seen == list(range(9))
        assert len(await world.open_ledgers()) == 1

    run(scenario)


def test_a_full_ledger_is_not_ended_while_an_entry_of_it_is_in_flight() -> None:
    async def scenario(world: TailWorld, log_id: int) -> None:
        writer = await world.client.writer(log_id, roll_entries=2)
        world.bookies.is_answering.clear()
        before = await world.head(log_id)

        futures = [writer.append_async(value) for value in values(0, 3)]
        for _ in range(500):
            await asyncio.sleep(0)
        assert await world.head(log_id) == before
        assert world.bookies.fenced == set()
        world.bookies.is_answering.set()

        assert [position.row for position in await asyncio.gather(*futures)] == [0, 1, 2]

    run(scenario)


def test_nothing_follows_a_full_ledger_whose_last_entry_failed() -> None:
    async def scenario(world: TailWorld, log_id: int) -> None:
        writer = await world.client.writer(log_id, roll_entries=2)
        only = writer.ledger_id
        world.bookies.is_answering.clear()
        futures = [writer.append_async(value) for value in values(0, 3)]

        failure = NotEnoughBookiesError(1, ())
        writer._ledger.appender.abandon(failure)
        world.bookies.is_answering.set()

        results = await asyncio.gather(*futures, return_exceptions=True)
        assert results == [failure] * 3
        await writer.close()
        assert await world.ledger_ids() == {only}
        assert (await world.head(log_id)).open_ledger is None

    run(scenario)


def test_a_writer_that_rolled_without_hearing_of_it_knows_its_own_ledger() -> None:
    class Deaf:
        """Loses the reply of the roll's multi and every answer about what became of it."""

        def __init__(self) -> None:
            self.deaf_for = 0
            self.is_armed = False
            self.was_deaf = False

        def __call__(self, operation: str, path: str) -> Fault | None:
            if self.is_armed and operation == "multi":
                self.is_armed, self.was_deaf = False, True
                self.deaf_for = READ_BACK_ATTEMPTS_MAX
                return Fault.LOST_REPLY
            if self.deaf_for:
                self.deaf_for -= 1
                return Fault.LOST_REQUEST
            return None

    async def scenario(world: TailWorld, log_id: int) -> None:
        deaf = Deaf()
        writer = await world.another(deaf).writer(log_id, roll_entries=2)
        await writer.append(b"v-0")
        deaf.is_armed = True

        await writer.append_many(values(1, 3))
        await writer.close()

        assert deaf.was_deaf
        assert await world.rows(log_id) == values(0, 4)
        # The ledger it had not heard of was empty, and is garbage.
        assert len(await world.client.layer.nodes(log_id).garbage_epochs()) >= 1

    run(scenario)


def test_a_writer_without_appends_leaves_an_empty_ledger_to_the_garbage() -> None:
    async def scenario(world: TailWorld, log_id: int) -> None:
        writer = await world.client.writer(log_id)
        await writer.close()

        nodes = world.client.layer.nodes(log_id)
        (epoch,) = await nodes.garbage_epochs()
        garbage = await nodes.garbage(epoch)
        assert garbage is not None
        assert garbage.reason is GarbageReason.EMPTY_TAIL
        assert [item.ledger_id for item in garbage.ranges] == [writer.ledger_id]
        assert (await world.head(log_id)).ranges == ()

        world.now_ms += 3_600_000
        await world.client.collect(log_id)
        assert await world.ledger_ids() == set()
        assert await nodes.garbage_epochs() == []

    run(scenario)


def test_a_second_writer_takes_the_log_and_the_first_learns_it() -> None:
    async def scenario(world: TailWorld, log_id: int) -> None:
        first = await world.client.writer(log_id)
        await first.append_many(values(0, 2))

        second = await world.another().writer(log_id)
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
        assert await world.rows(log_id) == [*values(0, 2), b"second"]

    run(scenario)


def test_a_writer_that_has_nothing_in_flight_learns_of_a_successor_when_it_closes() -> None:
    async def scenario(world: TailWorld, log_id: int) -> None:
        first = await world.client.writer(log_id)
        await first.append(b"1")
        second = await world.another().writer(log_id)

        # The successor closed the first one's ledger exactly where that would close it.
        await first.close()

        head = await world.head(log_id)
        assert head.open_ledger is not None
        assert head.open_ledger.ledger_id == second.ledger_id
        await second.close()

    run(scenario)


def test_a_rolling_writer_that_was_followed_gets_the_logs_own_error() -> None:
    async def scenario(world: TailWorld, log_id: int) -> None:
        first = await world.client.writer(log_id, roll_entries=2)
        await first.append(b"1")
        await world.another().log(log_id).recover()

        with pytest.raises(LogFencedError):
            await first.append_many([b"2", b"3", b"4"])

        assert await world.rows(log_id) == [b"1"]
        assert (await world.head(log_id)).open_ledger is None

    run(scenario)


def test_recover_leaves_the_log_without_writer_and_with_every_acknowledged_row() -> None:
    async def scenario(world: TailWorld, log_id: int) -> None:
        writer = await world.client.writer(log_id)
        await writer.append_many(values(0, 5))

        await world.another().log(log_id).recover()
        await world.another().log(log_id).recover()

        assert (await world.head(log_id)).open_ledger is None
        assert await world.rows(log_id) == values(0, 5)

    run(scenario)


def test_a_tail_that_cannot_be_decided_stops_the_take_over_and_changes_nothing() -> None:
    async def scenario(world: TailWorld, log_id: int) -> None:
        writer = await world.client.writer(log_id)
        world.bookies.is_undecidable = True
        before = await world.head(log_id)

        # Nothing is known of the ledger, which is not the same as: it is empty.
        with pytest.raises(LedgerRecoveryError):
            await world.another().writer(log_id)
        with pytest.raises(LedgerRecoveryError):
            await world.another().log(log_id).recover()

        assert await world.head(log_id) == before
        assert await world.client.layer.nodes(log_id).garbage_epochs() == []
        world.bookies.is_undecidable = False
        async with await world.another().writer(log_id) as second:
            assert second.ledger_id != writer.ledger_id

    run(scenario)


def test_a_log_of_arrow_entries_has_no_writer_or_reader_of_single_values() -> None:
    async def scenario(world: TailWorld, log_id: int) -> None:
        with pytest.raises(LogPayloadError, match="payload_format=arrow"):
            await world.client.writer(log_id)
        with pytest.raises(LogPayloadError, match="payload_format=arrow"):
            _ = [each async for each in world.client.log(log_id).reader()]

        assert await world.ledger_ids() == set()
        assert await world.client.layer.nodes(log_id).epochs() == []

    run(scenario, LogSettings())


def test_a_payload_that_is_too_large_is_refused_and_the_writer_goes_on() -> None:
    async def scenario(world: TailWorld, log_id: int) -> None:
        async with await world.client.writer(log_id) as writer:
            with pytest.raises(EntryTooLargeError):
                await writer.append_many([b"fits", b"x" * (writer.payload_size_max + 1)])
            assert (await writer.append(b"next")).row == 0

    run(scenario)


def test_appends_wait_while_too_much_is_held() -> None:
    async def scenario(world: TailWorld, log_id: int) -> None:
        writer = await world.client.writer(log_id, max_in_flight_bytes=100, roll_entries=7)
        released: list[int] = []
        writer.on_release = released.append

        async with asyncio.timeout(seconds(10)):
            await asyncio.gather(*(writer.append(b"x" * 60) for _ in range(20)))
            await writer.close()

        assert sum(released) == 20 * 60
        assert len(await world.rows(log_id)) == 20

    run(scenario)


def test_an_abandoned_writer_fails_what_waits_and_its_log_can_be_taken_over() -> None:
    async def scenario(world: TailWorld, log_id: int) -> None:
        writer = await world.client.writer(log_id, roll_entries=2)
        await writer.append(b"0")
        waiting = [writer.append_async(value) for value in values(1, 5)]

        writer.abandon(ClientClosedError("client"))

        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert all(isinstance(result, ClientClosedError) for result in results)
        async with await world.another().writer(log_id) as second:
            await second.append(b"second")
        rows = await world.rows(log_id)
        assert rows[0] == b"0"
        assert rows[-1] == b"second"

    run(scenario)


def test_deleting_the_log_fences_its_writer() -> None:
    async def scenario(world: TailWorld, log_id: int) -> None:
        writer = await world.client.writer(log_id, roll_entries=3)
        await writer.append(b"1")

        await world.another().layer.catalog.delete(NAME)

        assert await world.ledger_ids() == set()
        with pytest.raises(LedgerFencedError):
            await writer.append_many([b"2", b"3", b"4"])
        with pytest.raises(NoSuchLogError):
            await world.client.writer(log_id)

    run(scenario)


def test_a_spark_write_and_a_writer_exclude_each_other() -> None:
    async def scenario(world: TailWorld, log_id: int) -> None:
        layer = world.client.layer
        epoch = await layer.jobs.plan(log_id, NAME)
        message = TaskMessage(
            epoch=epoch,
            job=Job.of_batch("job"),
            partition=0,
            task_attempt_id=1,
            written=LedgerWritten(77, 0, 5, 50),
        )

        # A writer that comes between plan and commit: the commit is refused.
        writer = await world.another().writer(log_id)
        await writer.append(b"1")
        with pytest.raises(LogHasWriterError):
            await layer.committer.commit([message], log=NAME)
        # And no plan begins beside it.
        with pytest.raises(LogHasWriterError):
            await layer.jobs.plan(log_id, NAME)

        # Taking over frees the log for the very same commit.
        await layer.tail(log_id, NAME).close()
        await layer.committer.commit([message], log=NAME)
        assert [item.rows for item in (await world.head(log_id)).ranges] == [1, 5]
        with pytest.raises(LogFencedError):
            await writer.append_many([b"2"])

        # The next writer numbers on behind Spark's rows.
        async with await world.another().writer(log_id) as second:
            assert (await second.append(b"x")).row == 6

    run(scenario)


def test_a_truncation_does_not_disturb_the_writer() -> None:
    async def scenario(world: TailWorld, log_id: int) -> None:
        writer = await world.client.writer(log_id, roll_entries=2)
        await writer.append_many(values(0, 5))

        assert await world.another().log(log_id).truncate(4) == 4
        await writer.append_many(values(5, 4))
        await writer.close()

        assert await world.rows(log_id) == values(4, 5)

    run(scenario)


def test_settings_tell_all_their_defects_at_once() -> None:
    with pytest.raises(ValueError, match=r"roll_entries.*roll_bytes.*max_in_flight_bytes"):
        LogWriterSettings(roll_entries=-1, roll_bytes=-1, max_in_flight_bytes=0)
