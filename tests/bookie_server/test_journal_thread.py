"""JournalThread: outcomes are told in order, each once, whichever thread tells them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextvars import Context
from functools import partial
from typing import TypeVarTuple, cast

import pytest

from bookie_server.core.effects import Persist
from bookie_server.core.records import Fence
from bookie_server.journal_thread import JournalThread
from bookie_server.lent_loop import LentLoop
from bookie_server.storage.disk.errors import StorageFailedError
from bookie_server.storage.disk.group import GroupEnd
from bookie_server.storage.journal.journal import Journal
from bookie_server.storage.journal.journal_file import JournalPosition

Ts = TypeVarTuple("Ts")
ROUNDS = 20


class QuickJournal:
    """Writes in no time, so that the next outcome follows while the last is on its way."""

    index = 0
    wants_preparing = False

    def __init__(self) -> None:
        self.may_write = threading.Event()
        self.may_write.set()

    def write_group(self, records: Sequence[object]) -> JournalPosition:
        self.may_write.wait()
        return JournalPosition(0, GroupEnd(0, 0, 0))

    def prepare(self) -> bool:
        return False


class SickJournal(QuickJournal):
    """Whose disk takes no write, or no zeros."""

    def __init__(self, *, is_writing_sick: bool) -> None:
        super().__init__()
        self._is_writing_sick = is_writing_sick

    def write_group(self, records: Sequence[object]) -> JournalPosition:
        if self._is_writing_sick:
            raise StorageFailedError("journal", "no write")
        return super().write_group(records)

    def prepare(self) -> bool:
        if not self._is_writing_sick:
            raise StorageFailedError("journal", "no zeros")
        return False


class Told:
    """What the loop is told of, in the order it is."""

    def __init__(self) -> None:
        self.tickets: list[int] = []
        self.both = asyncio.Event()
        self.journal = QuickJournal()
        # Each persist is a group of its own.
        self.thread = JournalThread(cast(Journal, self.journal), 1, self._done, self._failed)

    def submit_two(self) -> None:
        first = len(self.tickets)
        for ticket in (first, first + 1):
            self.thread.submit(Persist(ticket, 1, (Fence(1),), (), size_bytes=1))

    def _done(self, group: Sequence[Persist], _: JournalPosition) -> None:
        self.tickets.extend(persist.ticket for persist in group)
        if len(self.tickets) % 2 == 0:
            self.both.set()

    def _failed(self, _: Sequence[Persist], error: Exception) -> None:
        raise AssertionError from error


class SlowToWake(LentLoop):
    """Hears late of what is handed over, so that whatever can overtake that does."""

    def call_soon_threadsafe(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.Handle:
        hand_over = partial(super().call_soon_threadsafe, callback, *args, context=context)
        threading.Timer(0.01, hand_over).start()
        return asyncio.Handle(callback, args, self)


def test_the_outcome_of_a_group_never_overtakes_that_of_the_one_before() -> None:
    async def main() -> None:
        loop, told = asyncio.get_running_loop(), Told()
        assert isinstance(loop, LentLoop)

        def submit() -> None:
            loop.call_from_thread(told.submit_two)
            told.journal.may_write.set()

        for _ in range(ROUNDS):
            # From another thread, as the loop waits: the second comes to be before it has woken for the first.
            told.journal.may_write.clear()
            threading.Thread(target=submit).start()
            await told.both.wait()
            told.both.clear()
        await told.thread.stop()
        assert told.tickets == list(range(2 * ROUNDS))

    with asyncio.Runner(loop_factory=SlowToWake) as runner:
        runner.run(main())


def test_a_loop_that_is_not_lent_is_told_all_the_same() -> None:
    async def main() -> None:
        told = Told()
        for _ in range(ROUNDS):
            told.submit_two()
            await told.both.wait()
            told.both.clear()
        await told.thread.stop()
        assert told.tickets == list(range(2 * ROUNDS))

    asyncio.run(main())


@pytest.mark.parametrize("loop_factory", [LentLoop, asyncio.SelectorEventLoop])
def test_a_write_that_fails_is_told_with_what_it_was_to_write_and_ends_the_journal(
    loop_factory: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def main() -> None:
        failed: asyncio.Future[tuple[list[int], str]] = asyncio.get_running_loop().create_future()
        done: list[int] = []

        def on_failed(group: Sequence[Persist], error: Exception) -> None:
            failed.set_result(([persist.ticket for persist in group], str(error)))

        journal = cast(Journal, SickJournal(is_writing_sick=True))
        thread = JournalThread(
            journal, 1 << 20, lambda group, _: done.extend(each.ticket for each in group), on_failed
        )
        thread.submit(Persist(7, 1, (Fence(1),), (), size_bytes=1))
        tickets, detail = await failed
        assert tickets == [7]
        assert "no write" in detail
        # Nothing is tried again: told a second time, the future above would say so.
        thread.submit(Persist(8, 1, (Fence(1),), (), size_bytes=1))
        await thread.stop()
        assert not done

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main())


def test_zeros_that_cannot_be_written_are_told() -> None:
    async def main() -> None:
        failed: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def on_failed(group: Sequence[Persist], error: Exception) -> None:
            assert not group
            failed.set_result(str(error))

        journal = cast(Journal, SickJournal(is_writing_sick=False))
        thread = JournalThread(journal, 1, lambda *_: None, on_failed)
        assert "no zeros" in await failed
        await thread.stop()

    asyncio.run(main())
