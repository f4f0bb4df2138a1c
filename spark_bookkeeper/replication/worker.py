"""Replication worker: takes marked ledgers, a few at a time, has them mended and clears their marks.

Per ledger, under the lock of its mark:

1. read the mark - before anything else, so that what is marked later is not cleared;
2. mend what no writer adds to any more;
3. if a member of the last fragment of an unclosed ledger is away, leave its writer time to replace it,
   then recover the ledger - which ends the writer - and mend what is closed then. Only where another
   bookie is writable: else the writer would be ended, and nothing gained;
4. clear the mark, if the ledger is whole and the mark still says what was read.

What fails is tried again, later each time; others may try meanwhile. Source: Apache ``ReplicationWorker``,
which holds the lock of what failed instead.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from bookkeeper_metadata.foundation.bounded import each
from bookkeeper_metadata.foundation.errors import BookKeeperError
from bookkeeper_metadata.foundation.recent import Recent
from bookkeeper_metadata.model import Fragment
from bookkeeper_metadata.underreplication import Underreplication
from spark_bookkeeper.ledger.context import LedgerContext
from spark_bookkeeper.ledger.recovery import recover_ledger
from spark_bookkeeper.replication.lost_bookies import Patience
from spark_bookkeeper.replication.measures import ReplicationMeasures
from spark_bookkeeper.replication.mending import LedgerMender, Mended
from spark_bookkeeper.replication.settings import ReplicationSettings

_LOGGER = logging.getLogger(__name__)
_RECENT_S = 1.0
"""How long a walk through the marks may go on that somebody has disabled."""
_SHOWN_MAX = 200
"""Characters of an error that are shown as the reason why a ledger is not mended."""
_NEWS_S = 60.0
"""What failed is tried again for bookies' coming and going at most so often; a first one counts at once."""


@dataclass(slots=True)
class _Waiting:
    """A ledger that is not to be tried now."""

    until_s: float
    delay_ms: int = 0
    """That it waited last for a failure; 0: there was none."""
    fragment: Fragment | None = None
    """The last one of a ledger that is written, which its writer may still change by itself."""
    grace_until_s: float = 0.0
    """So long it has time for that, whatever is tried meanwhile."""


class ReplicationWorker:
    """One per process, on its event loop."""

    def __init__(
        self,
        cluster: LedgerContext,
        marks: Underreplication,
        mender: LedgerMender,
        *,
        holder: str,
        settings: ReplicationSettings,
        patience: Patience | None = None,
        measures: ReplicationMeasures | None = None,
    ) -> None:
        """``holder`` names this process in its locks, for people to read; ``patience`` is the mender's."""
        self._cluster = cluster
        self._marks = marks
        self._mender = mender
        self._holder = holder
        self._settings = settings
        self._patience = patience
        self._measures = measures or ReplicationMeasures()
        self._waiting: dict[int, _Waiting] = {}
        self._is_enabled = Recent(marks.is_enabled, _RECENT_S)
        self._there: tuple[frozenset[str], frozenset[str]] | None = None
        """Bookies that were registered at the last look, and those of them that took new entries."""
        self._has_news = False
        """Some came or went, and what failed was not tried again since."""
        self._news_count_at_s = 0.0

    async def run(self) -> None:
        """Mend whatever is marked, for ever, but for while auto-recovery is disabled."""
        while True:
            try:
                mended = await self.look() if await self._marks.is_enabled() else 0
            except BookKeeperError as error:
                _LOGGER.warning("marked ledgers are not mended now. detail=%s", error)
                mended = 0
            if not mended:
                await asyncio.sleep(self._settings.poll_ms / 1000)

    async def look(self) -> int:
        """One walk through the marks; returns how many of them were cleared.

        Raises:
            MetadataUnavailableError, MetadataCorruptError: what is marked, and may be mended, is not known.
        """
        await self._marks.release_left()
        await self._look_who_is_there()
        delay_s = await self._marks.lost_bookie_delay()
        if self._patience is not None and delay_s is not None:
            self._patience.delay_s = delay_s
        locked = await self._marks.list_locked_ledgers()
        marked = [found async for found in self._marks.list_marked_ledgers(self._cluster.random)]
        seen = set(marked)
        self._waiting = {known: kept for known, kept in self._waiting.items() if known in seen}
        due = [found for found in marked if found not in locked and not self._must_wait(found)]
        self._measures.underreplicated_ledgers = len(seen)
        are_cleared = await each(
            self._try_to_work, due, concurrency_max=self._settings.ledgers_at_once
        )
        cleared = [found for found, is_one in zip(due, are_cleared, strict=True) if is_one]
        await self._marks.delete_empty_folders(cleared)
        return len(cleared)

    async def _try_to_work(self, ledger_id: int) -> bool:
        """Whether the mark is cleared; it is not, if auto-recovery is disabled or another has the ledger."""
        if not await self._is_enabled.get():
            return False
        try:
            async with self._marks.lock(ledger_id, self._holder) as is_held:
                is_cleared = is_held and await self._work(ledger_id)
        except BookKeeperError as error:
            # One lost reply must not end what is done for the others.
            self._wait_after(ledger_id, f"{error.name}: {error}")
            return False
        except Exception as defect:
            # A defect that one ledger shows must not end what is done for the others, either.
            _LOGGER.exception("a ledger is not mended. ledger_id=%d", ledger_id)
            self._wait_after(ledger_id, repr(defect)[:_SHOWN_MAX])
            return False
        self._measures.underreplicated_ledgers -= is_cleared
        return is_cleared

    async def _work(self, ledger_id: int) -> bool:
        """Mend one ledger; whether its mark is cleared."""
        begun_s = self._now_s()
        mark = await self._marks.read(ledger_id)
        if mark is None:
            return False
        mended = await self._mend(ledger_id)
        if self._is_grace_over(mended) and await self._mender.may_take_over(mended):
            metadata = (await self._cluster.ledgers.read(ledger_id)).metadata
            await recover_ledger(self._cluster, ledger_id, metadata.password, wants_copies=False)
            self._measures.recovered_ledgers += 1
            _LOGGER.warning("ledger taken from its writer; ledger_id=%d", ledger_id)
            mended = await self._mend(ledger_id)
        if mended.left:
            self._wait_after(ledger_id, "; ".join(mended.left))
        if not mended.is_whole or not await self._marks.clear(ledger_id, mark):
            return False
        self._waiting.pop(ledger_id, None)
        self._measures.mended.add(self._now_s() - begun_s)
        _LOGGER.info(
            "ledger is whole; ledger_id=%d copied_bytes=%d replaced=%d",
            ledger_id,
            mended.copied_bytes,
            len(mended.replaced),
        )
        return True

    async def _mend(self, ledger_id: int) -> Mended:
        mended = await self._mender.mend(ledger_id)
        # Whatever becomes of the rest of the ledger.
        self._measures.replaced_members += len(mended.replaced)
        return mended

    def _is_grace_over(self, mended: Mended) -> bool:
        """Whether the writer of an open ledger has had its time to replace what is away."""
        ledger_id, fragment = mended.ledger_id, mended.open_fragment
        if fragment is None:
            return False
        known = self._waiting.get(ledger_id)
        if known is None or known.fragment != fragment:
            until_s = self._now_s() + self._settings.open_ledger_grace_ms / 1000
            delay_ms = known.delay_ms if known is not None else 0
            self._waiting[ledger_id] = _Waiting(until_s, delay_ms, fragment, until_s)
            return False
        if self._now_s() < known.grace_until_s:
            known.until_s = known.grace_until_s
            return False
        return True

    async def _look_who_is_there(self) -> None:
        """A bookie that came may be what some ledgers wait for, and so may one that went: another takes its place now."""
        registered = await self._cluster.registry.list_registered_ids()
        there = frozenset(registered), frozenset(await self._cluster.usable_bookies())
        before, self._there = self._there, there
        if there != before:
            self._has_news = before is not None
            self._mender.look_around()
        # One that comes and goes must not have all be tried at every look.
        if not self._has_news or self._now_s() < self._news_count_at_s:
            return
        self._has_news, self._news_count_at_s = False, self._now_s() + _NEWS_S
        for waiting in self._waiting.values():
            if waiting.delay_ms:
                waiting.until_s, waiting.delay_ms = 0, 0

    def _must_wait(self, ledger_id: int) -> bool:
        known = self._waiting.get(ledger_id)
        return known is not None and known.until_s > self._now_s()

    def _wait_after(self, ledger_id: int, why: str) -> None:
        """It failed: try it again after twice the time."""
        self._measures.failed_tries += 1
        settings, known = self._settings, self._waiting.setdefault(ledger_id, _Waiting(0))
        delay_ms = min(settings.retry_ms_max, max(settings.retry_ms_min, 2 * known.delay_ms))
        known.until_s, known.delay_ms = self._now_s() + delay_ms / 1000, delay_ms
        _LOGGER.warning(
            "ledger still lacks copies; ledger_id=%d retry_ms=%d reason=%s",
            ledger_id,
            delay_ms,
            why,
        )

    @staticmethod
    def _now_s() -> float:
        return asyncio.get_running_loop().time()
