"""Auditor: marks the ledgers that have lost copies. There is one, elected; two at once do no harm.

A bookie is lost if it has a cookie, or was registered, and is not registered now. All ledgers whose metadata
names it, in whatever fragment, are marked; whoever mends them finds out what they lack. An error marks
less than there is to mark, never a ledger that is whole - and a mark of one costs a look.

Source: Apache ``Auditor``, ``AuditorBookieCheckTask``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from contextlib import ExitStack, suppress

from bookkeeper_metadata.cookies import CookieStore
from bookkeeper_metadata.election import AuditorElection
from bookkeeper_metadata.errors import MetadataCorruptError, NoSuchLedgerError
from bookkeeper_metadata.foundation.bounded import each
from bookkeeper_metadata.foundation.errors import BookKeeperError
from bookkeeper_metadata.underreplication import Underreplication
from spark_bookkeeper.ledger.context import LedgerContext
from spark_bookkeeper.replication.lost_bookies import LostBookies
from spark_bookkeeper.replication.settings import ReplicationSettings

_LOGGER = logging.getLogger(__name__)
READS_MAX = 64
"""Ledgers' metadata read at a time."""
_BATCH = 1_000
"""Ledgers that are listed ahead of what is read."""
_LOOK_AGAIN_S = 10.0
"""How often it looks whatever its watches say, and whether it is still elected."""


class Auditor:
    """The part of an elected process; use :meth:`run` on its event loop."""

    def __init__(
        self,
        cluster: LedgerContext,
        marks: Underreplication,
        election: AuditorElection,
        *,
        settings: ReplicationSettings,
        clock_ms: Callable[[], int],
    ) -> None:
        self._cluster = cluster
        self._marks = marks
        self._election = election
        self._settings = settings
        self._clock_ms = clock_ms
        self._cookies = CookieStore(cluster.store, cluster.root)

    async def run(self) -> None:
        """Stand for election, audit while elected, and stand again; for ever."""
        while True:
            try:
                await self._election.win()
                _LOGGER.info("elected as auditor.")
                await self._audit_while_elected()
                _LOGGER.warning("not the auditor any more.")
            except BookKeeperError as error:
                _LOGGER.warning("nothing is audited now. detail=%s", error)
                await asyncio.sleep(_LOOK_AGAIN_S)

    async def audit(self, lost: Collection[str]) -> int:
        """Mark every ledger that names one of these bookies, unless it came back; returns how many.

        Raises:
            MetadataUnavailableError: some may not be marked.
        """
        await self._cluster.ledgers.sync()
        gone = frozenset(lost).difference(await self._cluster.registry.list_registered_ids())
        if not gone:
            return 0

        async def look(ledger_id: int) -> bool:
            try:
                metadata = (await self._cluster.ledgers.read(ledger_id)).metadata
            except NoSuchLedgerError:
                return False  # deleted meanwhile
            except MetadataCorruptError as corrupt:
                # One that nobody understands must not keep the others unmarked.
                _LOGGER.error("a ledger is not audited. detail=%s", corrupt)
                return False
            named = gone & metadata.bookie_ids
            if named:
                await self._marks.mark(ledger_id, sorted(named), now_ms=self._clock_ms())
            return bool(named)

        marked, batch = 0, list[int]()
        async for ledger_id in self._cluster.ledgers.list_ids():
            batch.append(ledger_id)
            if len(batch) == _BATCH:
                marked += sum(await each(look, batch, concurrency_max=READS_MAX))
                batch.clear()
        marked += sum(await each(look, batch, concurrency_max=READS_MAX))
        _LOGGER.warning(
            "ledgers of lost bookies marked. bookies=%s ledgers=%d", sorted(gone), marked
        )
        return marked

    async def _audit_while_elected(self) -> None:
        now_s = asyncio.get_running_loop().time
        bookies = LostBookies(self._settings.lost_bookie_delay_ms / 1000)
        changed = asyncio.Event()

        def on_delay(seconds: int | None) -> None:
            if seconds is not None:
                bookies.on_delay(seconds, now_s())
            changed.set()

        with ExitStack() as stops:
            stops.callback(await self._marks.watch_lost_bookie_delay(on_delay))
            stops.callback(await self._marks.watch_enabled(lambda _: changed.set()))
            stops.callback(await self._cluster.registry.watch(lambda *_: changed.set()))
            check_s = now_s() + self._settings.bookie_check_interval_ms / 1000
            while await self._election.is_first():
                changed.clear()
                if now_s() >= check_s:
                    check_s = now_s() + self._settings.bookie_check_interval_ms / 1000
                    bookies.forget_audits()
                bookies.on_known(await self._cookies.bookie_ids())
                bookies.on_registered(await self._cluster.registry.list_registered_ids(), now_s())
                due = bookies.due(now_s())
                if due and await self._marks.is_enabled():
                    await self.audit(due)
                    bookies.on_audited(due)
                else:
                    await _wait(changed, bookies.left_s(now_s(), _LOOK_AGAIN_S))


async def _wait(changed: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(changed.wait(), seconds)
