"""Workers: where a bookie's blocking work runs, so that everything else stays on one event loop.

A bookie asks for four kinds of work: groups written to a journal, entry logs read, checkpoints
written, and what start and stop have to do. :class:`ThreadWorkers` gives each its threads. An
implementation decides *when* work is done, never what: outcomes always arrive on the event loop, a
journal's groups in their order.
"""

from __future__ import annotations

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from bookie_server.journal_thread import GroupDone, GroupFailed, JournalThread, JournalWriter
from bookie_server.storage.journal.journal import Journal

T = TypeVar("T")
_LOOK_S = 0.01
"""How often a checkpoint that rests looks whether it still may."""


class Workers(ABC):
    """Made for one bookie, used from its event loop."""

    @abstractmethod
    def write_journal(
        self, journal: Journal, group_bytes_max: int, done: GroupDone, failed: GroupFailed
    ) -> JournalWriter:
        """Begin to write a journal; ``done`` and ``failed`` are called on the event loop."""

    @abstractmethod
    def read(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Do a read from disk; several may run at once."""

    @abstractmethod
    def checkpoint(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Write a checkpoint; one at a time. Cancelling the future does not stop the work."""

    @abstractmethod
    def rest(self, may_rest: Callable[[], bool], times: float, seconds_max: float) -> None:
        """On a checkpoint's thread: let others work for so many times as long as it has worked since it last did.

        It ends as soon as it may not any more.
        """

    @abstractmethod
    async def finish(self, last: Callable[[], object] | None) -> None:
        """Wait for the work that was begun, then do ``last``; no other method is called afterwards."""


class ThreadWorkers(Workers):
    """A thread or two for each journal, a few for reads, one for checkpoints."""

    def __init__(self, read_threads: int) -> None:
        self._readers = ThreadPoolExecutor(read_threads, "entry-log-read")
        self._writer = ThreadPoolExecutor(1, "checkpoint")
        self._loop = asyncio.get_running_loop()
        self._is_finishing = threading.Event()
        self._rested_at_s = 0.0
        """By the processor's clock of the checkpoints' thread."""

    def write_journal(
        self, journal: Journal, group_bytes_max: int, done: GroupDone, failed: GroupFailed
    ) -> JournalWriter:
        return JournalThread(journal, group_bytes_max, done, failed)

    def read(self, work: Callable[[], T]) -> asyncio.Future[T]:
        return self._loop.run_in_executor(self._readers, work)

    def checkpoint(self, work: Callable[[], T]) -> asyncio.Future[T]:
        return self._loop.run_in_executor(self._writer, work)

    def rest(self, may_rest: Callable[[], bool], times: float, seconds_max: float) -> None:
        worked_s = time.thread_time() - self._rested_at_s
        until_s = time.monotonic() + min(times * worked_s, seconds_max)
        while may_rest() and (left_s := until_s - time.monotonic()) > 0:
            if self._is_finishing.wait(min(left_s, _LOOK_S)):
                break
        self._rested_at_s = time.thread_time()

    async def finish(self, last: Callable[[], object] | None) -> None:
        self._is_finishing.set()
        # Either may hang in the disk, and the loop takes note of a checkpoint after its thread has: leave the loop free meanwhile.
        await asyncio.to_thread(self._readers.shutdown)
        await asyncio.to_thread(self._writer.shutdown)
        if last is not None:
            await asyncio.to_thread(last)
