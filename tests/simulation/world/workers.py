"""A bookie's workers in virtual time: every sync takes as long as the seed says.

What is being written when the power goes is written *in part*: the operation is begun and the
machine stops before one of its changing calls, after which the file system decides what survives.
So a cut falls anywhere between the first byte and the sync.
"""

from __future__ import annotations

import asyncio
import zlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import TypeVar

from bookie_server.core.effects import Persist
from bookie_server.core.records import Add, Drop, Fence, JournalRecord, Replace, Tombstone
from bookie_server.journal_thread import GroupDone, GroupFailed, JournalWriter, take_group
from bookie_server.storage.compaction.rewrite import Rewritten
from bookie_server.storage.disk.errors import NoRoomError, StorageFailedError
from bookie_server.storage.journal.journal import Journal
from bookie_server.workers import Workers
from tests.simulation.kit.files import SimFileSystem, SimulatedCrash
from tests.simulation.kit.loop import Owner, SimLoop
from tests.simulation.world.collection_history import (
    Buried,
    Deleting,
    Dropped,
    Dropping,
    LogsRewritten,
)
from tests.simulation.world.history import Durable, FenceDurable, History
from tests.simulation.world.space_history import NoRoomForCheckpoint

T = TypeVar("T")
_CALLS_BEFORE_CUT_MAX = 6
"""A journal group makes two changing calls, a roll some more, a checkpoint about a dozen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskPace:
    """How long a disk takes."""

    sync_us: int = 300
    slow_permille: int = 0
    """Operations that take ``slow_us`` instead."""
    slow_us: int = 400_000
    prepares: bool = True
    """Whether journal files are prepared ahead, as a thread of its own does in production."""


@dataclass(eq=False)
class SimWorkers(Workers):
    """Works for one bookie process on one disk; ``cut`` ends it."""

    bookie: str
    files: SimFileSystem
    owner: Owner
    pace: DiskPace
    random: Random
    history: History
    crashed: Callable[[], None]
    """Called when a crash set by call number strikes."""
    _under_way: dict[int, Callable[[], object]] = field(default_factory=dict)
    _count: int = 0

    def __post_init__(self) -> None:
        self.loop: SimLoop = asyncio.get_running_loop()  # type: ignore[assignment]

    def write_journal(
        self, journal: Journal, group_bytes_max: int, done: GroupDone, failed: GroupFailed
    ) -> JournalWriter:
        return SimJournal(self, journal, group_bytes_max, done, failed)

    def read(self, work: Callable[[], T]) -> asyncio.Future[T]:
        future: asyncio.Future[T] = self.loop.create_future()
        self.later(self._delay_us(), partial(_complete, future, work))
        return future

    def checkpoint(self, work: Callable[[], T]) -> asyncio.Future[T]:
        future: asyncio.Future[T] = self.loop.create_future()

        def finished(outcome: T | None, error: Exception | None) -> None:
            if isinstance(outcome, Rewritten) and outcome.moved:
                rewritten = LogsRewritten(self.bookie, outcome.directory_index, outcome.log_ids)
                self.history.record(rewritten)
            _resolve(future, outcome, error)

        self.do(work, finished)
        return future

    def rest(self, may_rest: Callable[[], bool], times: float, seconds_max: float) -> None:
        """Work takes what time it takes here, whatever is done meanwhile."""

    async def finish(self, last: Callable[[], object] | None) -> None:
        while self._under_way:  # noqa: ASYNC110 - virtual time costs nothing
            await asyncio.sleep(0.001)
        if last is not None:
            last()

    def do(
        self, work: Callable[[], T], finished: Callable[[T | None, Exception | None], None]
    ) -> None:
        """Do ``work`` after the disk's delay; a power cut meanwhile finds it half done."""
        self._count += 1
        number = self._count
        self._under_way[number] = work

        def run() -> None:
            self._under_way.pop(number)
            try:
                outcome = work()
            except SimulatedCrash:
                self.crashed()
            except Exception as error:  # noqa: BLE001 - passed on as it is
                if isinstance(error, NoRoomError):
                    self.history.record(NoRoomForCheckpoint(self.bookie))
                finished(None, error)
            else:
                finished(outcome, None)

        self.later(self._delay_us(), run)

    def later(self, delay_us: int, work: Callable[[], None]) -> None:
        """As this process: not at all once it is dead, not yet while it is paused."""
        self.loop.after(delay_us, self.owner.run, work)

    def cut(self) -> None:
        """The process dies: what was under way is done in part."""
        works = list(self._under_way.values())
        self._under_way.clear()
        self.random.shuffle(works)
        for work in works:
            calls_max = self.random.choice((2, _CALLS_BEFORE_CUT_MAX))
            self.files.crash_at = self.files.steps + self.random.randrange(calls_max)
            try:
                work()
            except (Exception, SimulatedCrash):  # noqa: BLE001 - nobody is left to hear of it
                continue

    def note_durable(self, records: Sequence[JournalRecord]) -> None:
        """Tell the observer what a synced group holds."""
        for record in records:
            if isinstance(record, Add | Replace):
                run = record.run
                for index, entry_id in enumerate(run.entry_ids):
                    crc = zlib.crc32(run.record(index))
                    self.history.record(Durable(self.bookie, run.ledger_id, entry_id, crc))
            elif isinstance(record, Fence | Drop):
                self.history.record(FenceDurable(self.bookie, record.ledger_id))
                if isinstance(record, Drop):
                    self.history.record(Dropped(self.bookie, record.ledger_id))
            elif isinstance(record, Tombstone):
                self.history.record(Buried(self.bookie, record.first_ledger, record.last_ledger))

    def _delay_us(self) -> int:
        pace = self.pace
        if pace.slow_permille and self.random.randrange(1000) < pace.slow_permille:
            return self.random.randrange(pace.slow_us)
        return self.random.randrange(pace.sync_us // 2, 2 * pace.sync_us)


@dataclass(eq=False)
class SimJournal(JournalWriter):
    """Group commit as the journal thread's: what waits while one group is synced is the next."""

    _workers: SimWorkers
    _journal: Journal
    _group_bytes_max: int
    _done: GroupDone
    _failed: GroupFailed
    _waiting: deque[Persist] = field(default_factory=deque)
    _is_busy: bool = False
    _is_broken: bool = False

    def submit(self, persist: Persist) -> None:
        for record in persist.records:
            if isinstance(record, Drop):
                dropping = Dropping(self._workers.bookie, record.ledger_id)
                self._workers.history.record(dropping)
            elif isinstance(record, Tombstone):
                deleting = Deleting(self._workers.bookie, record.first_ledger, record.last_ledger)
                self._workers.history.record(deleting)
        self._waiting.append(persist)
        if not self._is_busy and not self._is_broken:
            self._is_busy = True
            self._workers.later(0, self._begin)

    async def stop(self) -> None:
        while self._is_busy:  # noqa: ASYNC110 - virtual time costs nothing
            await asyncio.sleep(0.001)

    def _begin(self) -> None:
        group = take_group(self._waiting, self._group_bytes_max)
        records = [record for persist in group for record in persist.records]
        write = partial(self._journal.write_group, records)

        def finished(position: object, error: Exception | None) -> None:
            if isinstance(error, StorageFailedError):
                self._is_broken, self._is_busy = True, False
                self._failed(group, error)
                return
            if error is not None:
                raise error
            self._workers.note_durable(records)
            self._done(group, position)  # type: ignore[arg-type]
            if self._waiting:
                self._begin()
            else:
                self._is_busy = False
                if self._workers.pace.prepares:
                    self._workers.do(self._journal.prepare, self._prepared)

        self._workers.do(write, finished)

    def _prepared(self, more: object, error: Exception | None) -> None:
        if isinstance(error, StorageFailedError):
            self._is_broken = True
            self._failed((), error)
        elif error is not None:
            raise error


def _complete(future: asyncio.Future[T], work: Callable[[], T]) -> None:
    if not future.done():
        future.set_result(work())


def _resolve(future: asyncio.Future[T], outcome: T | None, error: Exception | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(outcome)  # type: ignore[arg-type]
