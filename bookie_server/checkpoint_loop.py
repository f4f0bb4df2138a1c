"""When a bookie's checkpoints are written: when they are due, and again when a full disk stopped one.

Each writes a file and a delta to every directory, however little there is. So one of next to nothing waits
for a few intervals: a trickle of entries would leave thousands of files a day for compaction to merge.

A checkpoint that was begun is finished, whatever else happens: without its rows no reader would find
the entries of its snapshot again. One that finds no room keeps snapshot and journal as they are. It is
tried again, the same one, once there is room, and until then the bookie takes no adds.

Before a checkpoint, and before each try of one without room, deleted ledgers are buried: that is what
makes room, a few entry logs at a time where there is enough. Between checkpoints entry logs are rewritten, a few at a time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from bookie_server.compaction_loop import CompactionLoop
from bookie_server.core.space import Mode, Space
from bookie_server.observing.measures import BookieMeasures
from bookie_server.settings import BookieSettings
from bookie_server.storage.burial import BurialPlan, BurialResult
from bookie_server.storage.checkpoint import CheckpointPlan, CheckpointResult
from bookie_server.storage.disk.errors import NoRoomError
from bookie_server.storage.disk.group import GroupEnd
from bookie_server.storage.engine import Storage
from bookie_server.workers import Workers
from bookkeeper_metadata.foundation.tasks import end_tasks

_LOGGER = logging.getLogger(__name__)
_LOOK_S = 0.2
"""How often the write cache's age is checked, and its size where nothing comes; see :meth:`CheckpointLoop.look`."""
_TRY_AGAIN_S = 1.0
_LITTLE_SHARE = 64
"""Less than this part of the write cache is little: 1 MiB by default."""
_LITTLE_JOURNAL_BYTES = 16 * 1024 * 1024
"""As long as a start would not have more to replay: single small adds take a block of the journal each."""
_WAITS_OF_LITTLE = 6
_RESTS, _REST_S_MAX = 10, 0.25
"""How much longer than it works, and how long at most, a checkpoint rests behind each write while there is no hurry: at
once it would keep a processor from the adds of that moment, on all bookies of a ledger at the same time."""
_DELETED_AT_ONCE = 8
"""Entry logs of a directory that one burial deletes: half a GiB with the default cache."""
_DELETED_IN_HASTE = 2
"""While a full cache waits: more than its checkpoint writes, or a disk under constant load would never catch up."""
_DELETED_FOR_ROOM = 64
"""On a disk that is short. Not all of them: behind so many it may be short no more, and a checkpoint is due."""
_PAUSE_S = 0.005
"""Behind each part of such a log: while a disk takes room back, its syncs wait."""


def is_due(
    settings: BookieSettings, since_s: float, cached_bytes: int, journal_bytes: int | None
) -> bool:
    """Whether it is time for a checkpoint.

    ``journal_bytes`` were written since the last one began, into the journal that has most of them; ``None`` where
    that is not known, or a journal has gone on to another file.
    """
    if cached_bytes >= settings.write_cache_size_bytes:
        return True
    interval_s = settings.checkpoint_interval_ms / 1000
    is_little = (
        cached_bytes < settings.write_cache_size_bytes // _LITTLE_SHARE
        and journal_bytes is not None
        and journal_bytes < _LITTLE_JOURNAL_BYTES
    )
    return since_s >= (_WAITS_OF_LITTLE * interval_s if is_little else interval_s)


def may_rest(written_share: float, filled_share: float) -> bool:
    """Whether a checkpoint can let others work: what it has written is well ahead of what has come since it began.

    ``written_share``: of its entries; ``filled_share``: of the room beside them, behind which writers wait for its end.
    """
    return 2 * filled_share < written_share


class CheckpointLoop:
    """Use on the bookie's event loop. ``on_ended`` is called whenever a checkpoint was written or not."""

    def __init__(
        self,
        storage: Storage,
        settings: BookieSettings,
        workers: Workers,
        space: Space,
        measures: BookieMeasures,
        *,
        on_ended: Callable[[], None],
        fail: Callable[[Exception], None],
    ) -> None:
        self._storage = storage
        self._contents = storage.contents
        self._settings = settings
        self._workers = workers
        self._space = space
        self._measures = measures
        self._on_ended = on_ended
        self._fail = fail
        self._compaction = CompactionLoop(storage, settings, workers, space, measures)
        self._without_room: CheckpointPlan | None = None
        """The checkpoint that a full disk stopped; no other can begin before it is written."""
        self._marks: dict[int, GroupEnd] = {}
        """Up to where the checkpoint begun last has the journals."""
        self._written_bytes = 0
        """By the checkpoint begun last, into entry logs."""
        self._bury_at_s = 0.0
        """A burial that found no room is not tried again before."""
        self._is_full = asyncio.Event()
        """The write cache was, some time since the last look."""
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to write checkpoints; an end of the task, for any reason, is a failure."""
        self._task = asyncio.create_task(self._run(), name="checkpoints")
        self._task.add_done_callback(self._on_task_ended)

    async def stop(self) -> None:
        """Begin no more of them. One under way goes on in its worker."""
        if self._task is not None:
            await end_tasks([self._task])

    def look(self) -> None:
        """Begin a checkpoint at once where the cache is full, for what comes meanwhile fills the room beside it.

        At hundreds of megabytes a second that is as much in one period of the loop, and then every writer waits.
        """
        # While there is one, or it could not be ended, no other can begin: to wake the loop would leave nobody else a turn.
        if self._is_cache_full() and not self._contents.is_checkpointing:
            self._is_full.set()

    def _is_cache_full(self) -> bool:
        return self._contents.cached_bytes >= self._settings.write_cache_size_bytes

    def write_last(self) -> None:
        """Write the last checkpoint, unless one is under way; blocks meanwhile."""
        if self._contents.is_checkpointing:
            return
        try:
            self._storage.checkpoint_now()
        except NoRoomError as error:
            # The journal has everything, and the next start replays it.
            _LOGGER.warning("last checkpoint not written. detail=%s", error)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        last_s = loop.time()
        while True:
            await self._rest()
            since_s = loop.time() - last_s
            if self._without_room is not None:
                if since_s >= _TRY_AGAIN_S:
                    await self._bury()
                    await self._write(self._without_room)
                    last_s = loop.time()
                continue
            # At once: the space of what is deleted waits for no checkpoint.
            await self._bury()
            cached_bytes = self._contents.cached_bytes
            if is_due(self._settings, since_s, cached_bytes, self._journal_bytes()):
                last_s = loop.time()
                await self._checkpoint()
            if self._may_compact(loop.time()):
                await self._compaction.step()

    async def _rest(self) -> None:
        # It was full as long as a checkpoint was written, and what has come meanwhile may have filled it again.
        self._is_full.clear()
        self.look()
        with suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_S):
                await self._is_full.wait()

    async def _checkpoint(self) -> None:
        # In a method of its own: a plan has all that it wrote, and in the loop's
        # it would be in memory until the next one.
        plan = self._contents.begin_checkpoint()
        if plan is not None:
            self._marks = plan.marks
            await self._write(plan)

    def _journal_bytes(self) -> int | None:
        most = 0
        for journal, end in self._contents.applied.items():
            mark = self._marks.get(journal)
            if mark is None or mark.file_id != end.file_id:
                return None
            most = max(most, end.offset - mark.offset)
        return most

    def _may_compact(self, now_s: float) -> bool:
        # What one directory has committed of a checkpoint without room is not among its rows yet.
        return self._without_room is None and self._compaction.is_due(now_s)

    async def _bury(self) -> None:
        if asyncio.get_running_loop().time() < self._bury_at_s:
            return
        plan = self._contents.begin_burial()
        if plan is None:
            return
        bury = self._storage.checkpoints.bury
        burying = self._workers.checkpoint(
            partial(bury, plan, most=self._deleted_at_once(), pause=self._pause)
        )
        burying.add_done_callback(partial(self._on_buried, plan))
        with suppress(NoRoomError):
            await asyncio.shield(burying)

    def _deleted_at_once(self) -> int:
        """Most logs of a directory that a burial may delete now."""
        if self._space.is_short:
            return _DELETED_FOR_ROOM
        return _DELETED_IN_HASTE if self._is_cache_full() else _DELETED_AT_ONCE

    def _is_in_no_hurry(self) -> bool:
        """Whether neither the disk waits for what a burial gives back, nor writers for the checkpoint behind it."""
        return not self._space.is_short and not self._is_cache_full()

    def _pause(self) -> None:
        # On the worker's thread, and long enough however little that has worked.
        self._workers.rest(self._is_in_no_hurry, 1_000, _PAUSE_S)

    def _on_buried(self, plan: BurialPlan, burying: asyncio.Future[BurialResult]) -> None:
        # Here, since the last checkpoint may not wait for the task: what a burial
        # without room gives back is in that one.
        error = burying.exception()
        if isinstance(error, NoRoomError):
            self._contents.return_burial(plan)
            self._measures.waiting_logs = sum(map(len, (*plan.dead_logs, *plan.emptied_logs)))
            self._bury_at_s = asyncio.get_running_loop().time() + _TRY_AGAIN_S
            _LOGGER.error("deleted ledgers not buried, to be tried again. detail=%s", error)
        elif error is None:
            result = burying.result()
            self._contents.finish_burial(result)
            self._measures.waiting_logs = sum(map(len, (*result.left, *result.unread)))
            if plan.tombstones or plan.drops:
                self._compaction.on_deleted()
            deleted, emptied = (sum(map(len, logs)) for logs in (result.deleted, result.emptied))
            self._measures.deleted_logs += deleted + emptied
            if deleted or emptied:
                text = "entry logs deleted. of_deleted_ledgers=%d rewritten=%d"
                _LOGGER.info(text, deleted, emptied)

    def _on_task_ended(self, task: asyncio.Task[None]) -> None:
        # Without checkpoints the journals only grow, and a restart replays all of them.
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            self._fail(error)

    async def _write(self, plan: CheckpointPlan) -> None:
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        write = partial(self._storage.checkpoints.write, plan, partial(self._after_write, plan))
        self._written_bytes = 0
        writing = self._workers.checkpoint(write)
        writing.add_done_callback(partial(self._on_written, plan))
        try:
            await asyncio.shield(writing)
            self._measures.checkpoints.add(loop.time() - started_s)
        except NoRoomError as error:
            _LOGGER.error("checkpoint not written, to be tried again. detail=%s", error)

    def _after_write(self, plan: CheckpointPlan, size_bytes: int) -> None:
        # On the worker's thread; the sizes are only ever looked at.
        self._written_bytes += size_bytes
        of_snapshot, most_bytes = plan.cache.size_bytes, self._settings.cached_bytes_max
        written_share = self._written_bytes / max(1, of_snapshot)

        def may() -> bool:
            cached_bytes = self._contents.cached_bytes
            # Its end is waited for: by every writer, whose entries filled the cache before it began or
            # since, or by a disk to which it gives journals back.
            if cached_bytes >= most_bytes or self._space.mode is not Mode.WRITABLE:
                return False
            return may_rest(
                written_share, (cached_bytes - of_snapshot) / (most_bytes - of_snapshot)
            )

        # Shorter than it looks where many write: it ends when they have caught up.
        self._workers.rest(may, _RESTS, _REST_S_MAX)

    def _on_written(self, plan: CheckpointPlan, writing: asyncio.Future[CheckpointResult]) -> None:
        # Any other failure ends the task that waits for it, and that ends the bookie.
        if isinstance(writing.exception(), NoRoomError):
            self._without_room = plan
            self._measures.checkpoints_without_room += 1
            self._space.on_no_room()
        elif writing.exception() is None:
            self._without_room = None
            self._space.on_room()
            try:
                self._contents.finish_checkpoint(writing.result())
            except Exception as error:  # noqa: BLE001 - neither cache nor index may have the entries
                self._fail(error)
        self._on_ended()
