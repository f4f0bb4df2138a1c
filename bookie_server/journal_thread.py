"""JournalThread: the one thread that writes a journal, and the one that prepares its files.

Group commit arises by itself: whatever was submitted while the last group was being synced is the
next group. Nothing is retried: the first failure, of any kind, ends the journal for good and is
reported, for a journal that ended in silence would leave its adds waiting and the bookie looking alive.
"""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from bookie_server.core.effects import Persist
from bookie_server.lent_loop import LentLoop
from bookie_server.storage.journal.journal import Journal
from bookie_server.storage.journal.journal_file import JournalPosition

GroupDone = Callable[[Sequence[Persist], JournalPosition], None]
GroupFailed = Callable[[Sequence[Persist], Exception], None]
GROUP_PERSISTS_MAX = 2_048
"""Most adds and fences of one group: the event loop applies a group in one step, and 40,000 of the
smallest would keep it from all else for a fifth of a second."""


def take_group(waiting: deque[Persist], group_bytes_max: int) -> list[Persist]:
    """Remove and return what the next group carries, in order; empty when nothing waits."""
    group: list[Persist] = []
    size = 0
    # A persist is never split, so the last one may exceed the limit: a key
    # and the entries behind it become durable together.
    while waiting and size < group_bytes_max and len(group) < GROUP_PERSISTS_MAX:
        persist = waiting.popleft()
        size += persist.size_bytes
        group.append(persist)
    return group


class JournalWriter(ABC):
    """Writes what is submitted, group by group, and reports each on the event loop."""

    @abstractmethod
    def submit(self, persist: Persist) -> None:
        """Queue a persist for the next group."""

    @abstractmethod
    async def stop(self) -> None:
        """Write what was submitted, then end."""


class JournalThread(JournalWriter):
    """Takes submits from the event loop, and reports outcomes to it, a whole group at a time."""

    def __init__(
        self, journal: Journal, group_bytes_max: int, done: GroupDone, failed: GroupFailed
    ) -> None:
        self._journal = journal
        self._group_bytes_max = group_bytes_max
        self._done = done
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._outcomes: deque[Callable[[], None]] = deque()
        """What is to be told, in order: of two calls that tell it the later may come first."""
        # The loop appends and the thread pops, both atomic in a deque: no lock between them.
        self._waiting: deque[Persist] = deque()
        self._work = threading.Lock()
        """Locked until there is something to do: a lock takes a tenth of an event's Python to wake somebody."""
        self._work.acquire()
        self._room_used = threading.Event()
        self._is_stopping = False
        self._threads = (
            threading.Thread(target=self._write, name=f"journal-{journal.index}", daemon=True),
            threading.Thread(
                target=self._prepare, name=f"journal-{journal.index}-prepare", daemon=True
            ),
        )
        for thread in self._threads:
            thread.start()

    def submit(self, persist: Persist) -> None:
        self._waiting.append(persist)
        self._tell()

    async def stop(self) -> None:
        self._is_stopping = True
        self._tell()
        self._room_used.set()
        for thread in self._threads:
            # Elsewhere: the last groups report to this loop, which
            # must be free to release their replies.
            await asyncio.to_thread(thread.join)

    def _tell(self) -> None:
        # Released only here, on one thread: told once and not yet heard is enough.
        if self._work.locked():
            self._work.release()

    def _write(self) -> None:
        while True:
            # Before the queue is looked at: what is submitted after that look is told again.
            self._work.acquire()
            while group := take_group(self._waiting, self._group_bytes_max):
                try:
                    # Under no name: it would hold the last group's frames until the next group.
                    position = self._journal.write_group(
                        [record for persist in group for record in persist.records]
                    )
                except Exception as error:  # noqa: BLE001 - any error ends this thread
                    # What waits behind this group stays unanswered: the bookie is about
                    # to stop, and clients send again what was not answered.
                    self._report(partial(self._failed, group, error))
                    return
                self._report(partial(self._done, group, position))
                # Woken after each group the other thread would mostly find nothing to do.
                if self._journal.wants_preparing:
                    self._room_used.set()
            if self._is_stopping and not self._waiting:
                return

    def _report(self, outcome: Callable[[], None]) -> None:
        self._outcomes.append(outcome)
        # With the next group to write, that is what this thread is for.
        if isinstance(self._loop, LentLoop) and not self._waiting:
            self._loop.call_from_thread(self._tell_next)
        else:
            self._loop.call_soon_threadsafe(self._tell_next)

    def _tell_next(self) -> None:
        # One a call, and as many calls as outcomes: a step of the loop applies no more than a group.
        self._outcomes.popleft()()

    def _prepare(self) -> None:
        while not self._is_stopping:
            try:
                # One chunk at a time, so that a stop waits for one at most.
                while self._journal.prepare() and not self._is_stopping:
                    pass
            except Exception as error:  # noqa: BLE001 - any error ends this thread
                self._report(partial(self._failed, (), error))
                return
            self._room_used.wait()
            self._room_used.clear()
