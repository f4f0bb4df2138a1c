"""When entry logs are rewritten, and how fast: small steps between checkpoints, in the checkpoints' thread.

A *minor* round, often, rewrites the logs of which next to nothing lives, and merges small ones. A *major*
one, seldom, takes those of which a good part is dead. It comes at once where that much of all logs together is
dead: the emptiest go first, until it is less. After each step as much time passes as its bytes
take at the pace that is set. On a disk that is short of
room every partly dead log is worth a step, the emptiest first, as long as the copy leaves what is kept for
fences: it needs room before it gives any back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial

from bookie_server.core.space import Mode, Space
from bookie_server.observing.measures import BookieMeasures
from bookie_server.settings import BookieSettings
from bookie_server.storage.compaction.rules import choose_logs, is_wasteful, steps_of
from bookie_server.storage.disk.errors import NoRoomError
from bookie_server.storage.engine import Storage
from bookie_server.workers import Workers

_LOGGER = logging.getLogger(__name__)
_OVERHEAD_BYTES = 64 * 1024


class CompactionLoop:
    """Of one bookie; for use on its event loop, by whoever writes its checkpoints."""

    def __init__(
        self,
        storage: Storage,
        settings: BookieSettings,
        workers: Workers,
        space: Space,
        measures: BookieMeasures,
    ) -> None:
        self._storage = storage
        self._settings = settings
        self._workers = workers
        self._space = space
        self._measures = measures
        now_s = asyncio.get_running_loop().time()
        self._minor_at_s = now_s + settings.minor_compaction_interval_ms / 1000
        self._earliest_s = now_s
        """When the last step's bytes have taken the time that the pace gives them."""
        # Soon: a bookie that is often started would make none.
        self._major_at_s = self._minor_at_s
        self._first = -1
        """The directory that was looked at first last time."""
        self._is_major = False
        """A major round has begun, and has found something in each of its steps so far."""
        self._pinned: list[set[int]] = [set() for _ in settings.ledger_directories]
        """Per directory: logs with blocks that cannot be read; another try would find them again."""

    def is_due(self, now_s: float) -> bool:
        """Whether the next step may be made; never while the pace is 0."""
        return bool(self._settings.compaction_bytes_per_second) and now_s >= self._minor_at_s

    def on_deleted(self) -> None:
        """Ledgers were deleted: what they leave in logs that others keep is looked for at once."""
        self._minor_at_s = min(self._minor_at_s, self._earliest_s)

    async def step(self) -> None:
        """Rewrite a few logs of one directory, if any ought to be.

        Raises:
            StorageFailedError: the bookie must stop.
        """
        loop = asyncio.get_running_loop()
        copied_bytes, is_done = 0, True
        if self._space.mode <= Mode.READ_ONLY:
            self._is_major |= loop.time() >= self._major_at_s
            # Not from the first one each time: it may have no room for long.
            count = len(self._settings.ledger_directories)
            self._first = (self._first + 1) % count
            for number in (*range(self._first, count), *range(self._first)):
                if chosen := await self._choose(number):
                    copied_bytes, is_done = await self._rewrite(number, chosen), False
                    break
        now_s = loop.time()
        if is_done and self._is_major:
            self._is_major = False
            # What could not be read may be mended by now.
            self._pinned = [set() for _ in self._pinned]
            self._major_at_s = now_s + self._settings.major_compaction_interval_ms / 1000
        interval_s = self._settings.minor_compaction_interval_ms / 1000
        pace_s = copied_bytes / max(self._settings.compaction_bytes_per_second, 1)
        self._earliest_s = now_s + pace_s
        self._minor_at_s = now_s + (pace_s if copied_bytes else interval_s)

    async def _choose(self, number: int) -> list[int]:
        settings = self._settings
        try:
            shares = await self._workers.read(partial(self._storage.checkpoints.survey, number))
        except OSError as error:
            _LOGGER.warning("entry logs not looked at. detail=%s", error)
            return []
        is_short = self._space.mode is not Mode.WRITABLE
        open_shares = [share for share in shares if share.log_id not in self._pinned[number]]
        major_percent = settings.major_compaction_live_percent
        # The emptiest come first, so each step on a short disk gives back more than it takes.
        is_major = self._is_major or is_short or is_wasteful(open_shares, major_percent)
        chosen = choose_logs(
            open_shares,
            major_percent if is_major else settings.minor_compaction_live_percent,
            settings.compaction_merge_count,
            self._room_bytes(is_short),
        )
        if chosen:
            # Until the next look at the disks, which finds it gone and the old logs not yet.
            copied = sum(share.copy_bytes for share in shares if share.log_id in chosen)
            self._space.promise(copied + _OVERHEAD_BYTES)
        return chosen

    def _room_bytes(self, is_short: bool) -> int:
        """What a copy may take: it leaves both reserves whole; on a disk that is short of room, that for fences."""
        free_bytes = self._space.free_bytes
        settings = self._settings
        kept = settings.full_below_bytes if is_short else settings.read_only_below_bytes
        if free_bytes is None:
            return 1 << 62
        # Half, for a promise counts where journals are and where logs are.
        return (free_bytes - kept) // 2 - _OVERHEAD_BYTES

    async def _rewrite(self, number: int, chosen: Sequence[int]) -> int:
        """The bytes that were copied; 0 where there was no room."""
        rewriting = self._workers.checkpoint(
            partial(self._storage.checkpoints.compact, number, chosen)
        )
        # If the bookie is stopped meanwhile: as long as no row has moved, no log goes.
        try:
            result = await asyncio.shield(rewriting)
        except NoRoomError as error:
            _LOGGER.warning("entry logs not rewritten. detail=%s", error)
            return 0
        self._pinned[number] |= result.pinned
        contents = self._storage.contents
        moved = list(result.moved.items())
        for step in steps_of(contents.row_counts(number, result.moved)):
            contents.move_rows(number, dict(moved[step]))
            await asyncio.sleep(0)  # adds and reads go on
        contents.finish_compaction(result)
        self._measures.compacted_bytes += result.copied_bytes
        _LOGGER.info(
            "entry logs rewritten. logs=%d copied_bytes=%d", len(chosen), result.copied_bytes
        )
        return max(result.copied_bytes, 1)
