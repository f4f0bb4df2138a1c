"""Auditor: marks the ledgers that have lost copies. There is one, elected; two at once do no harm.

A bookie is lost if it has a cookie, or was registered, and is not registered now. All ledgers whose metadata
names it, in whatever fragment, are marked; whoever mends them finds out what they lack. An error marks
less than there is to mark, never a ledger that is whole - and a mark of one costs a look. Now and then it
has all bookies asked what they hold, too (:mod:`~spark_bookkeeper.replication.checking`).

Source: Apache ``Auditor``, ``AuditorBookieCheckTask``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from contextlib import ExitStack, suppress

from bookkeeper_metadata.cookies import CookieStore
from bookkeeper_metadata.election import AuditorElection
from bookkeeper_metadata.errors import MetadataCorruptError
from bookkeeper_metadata.foundation.errors import BookKeeperError
from bookkeeper_metadata.foundation.measures import Durations
from bookkeeper_metadata.model import LedgerMetadata
from bookkeeper_metadata.paths import PeriodicCheck
from bookkeeper_metadata.underreplication import Underreplication
from spark_bookkeeper.ledger.context import LedgerContext
from spark_bookkeeper.replication.checking import CopyChecks, LedgerWalk, Look, Walked
from spark_bookkeeper.replication.lost_bookies import LostBookies
from spark_bookkeeper.replication.measures import ReplicationMeasures
from spark_bookkeeper.replication.settings import ReplicationSettings

_LOGGER = logging.getLogger(__name__)
_LOOK_AGAIN_S = 10.0
"""How often it looks whatever its watches say, and whether it is still elected."""
_AGAIN_S = 60.0
"""Pause behind a walk through all ledgers in which no bookie said anything, or that passed over some."""


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
        measures: ReplicationMeasures | None = None,
    ) -> None:
        self._cluster = cluster
        self._marks = marks
        self._election = election
        self._settings = settings
        self._clock_ms = clock_ms
        self._measures = measures or ReplicationMeasures()
        self._cookies = CookieStore(cluster.store, cluster.root)
        self._walk = LedgerWalk(cluster, marks, clock_ms)
        self._copies = checks = CopyChecks(cluster)
        self._checks: dict[PeriodicCheck, tuple[int, Look]] = {
            PeriodicCheck.REPLICAS: (settings.replicas_check_interval_ms, checks.by_lists),
            PeriodicCheck.ALL_LEDGERS: (settings.ledgers_check_interval_ms, checks.by_ends),
        }

    async def run(self) -> None:
        """Stand for election, audit while elected, and stand again; for ever."""
        while True:
            try:
                await self._election.win()
                _LOGGER.info("elected as auditor.")
                self._measures.is_auditor = True
                await self._audit_while_elected()
                self._measures.is_auditor = False
                _LOGGER.warning("not the auditor any more.")
            except BookKeeperError as error:
                self._measures.is_auditor = False
                _LOGGER.warning("nothing is audited now. detail=%s", error)
                await asyncio.sleep(_LOOK_AGAIN_S)

    async def audit(self, lost: Collection[str]) -> Walked:
        """Mark every ledger that names one of these bookies, unless it came back.

        Raises:
            MetadataUnavailableError: some may not be marked.
        """
        await self._cluster.ledgers.sync()
        gone = frozenset(lost).difference(await self._cluster.registry.list_registered_ids())
        if not gone:
            return Walked(0)

        async def look(_: int, metadata: LedgerMetadata) -> frozenset[str]:
            return gone & metadata.bookie_ids

        walked = await self._mark_lacking(look, self._measures.audits)
        _LOGGER.warning(
            "ledgers of lost bookies marked. bookies=%s ledgers=%d", sorted(gone), walked.marked
        )
        return walked

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
            checking = asyncio.create_task(self._check_periodically(), name="check-copies")
            stops.callback(checking.cancel)
            check_s = now_s() + self._settings.bookie_check_interval_ms / 1000
            while await self._election.is_first():
                if checking.done():
                    checking.result()  # a defect
                changed.clear()
                if now_s() >= check_s:
                    check_s = now_s() + self._settings.bookie_check_interval_ms / 1000
                    bookies.forget_audits()
                bookies.on_known(await self._cookies.bookie_ids())
                bookies.on_registered(await self._cluster.registry.list_registered_ids(), now_s())
                due = bookies.due(now_s())
                if due and await self._marks.is_enabled():
                    if (await self.audit(due)).passed_over:
                        bookies.on_passed_over(due, _AGAIN_S, now_s())
                    else:
                        bookies.on_audited(due)
                else:
                    await _wait(changed, bookies.left_s(now_s(), _LOOK_AGAIN_S))

    async def _check_periodically(self) -> None:
        """Have bookies asked what they hold, as often as the settings say, whoever did it last."""
        while True:
            pause_s = _LOOK_AGAIN_S
            try:
                for check, (interval_ms, look) in self._checks.items():
                    is_due = await self._is_due(check, interval_ms)
                    may_check = is_due and await self._marks.is_enabled()
                    if may_check and not await self._check(check, look):
                        pause_s = _AGAIN_S
            except BookKeeperError as error:
                _LOGGER.warning("copies are not checked now. detail=%s", error)
            await asyncio.sleep(pause_s)

    async def _check(self, check: PeriodicCheck, look: Look) -> bool:
        """Whether bookies answered to its end, and no ledger showed a defect; else the check is due still."""
        await self._cluster.ledgers.sync()
        self._copies.begin()
        walked = await self._mark_lacking(look, self._measures.checks)
        by, silent = check.name.lower(), sorted(self._copies.silent)
        if self._copies.is_unheard:
            # As without a certificate that they take, or since the network was cut.
            _LOGGER.warning(
                "copies are not checked now, no bookie answers. by=%s asked=%s", by, silent
            )
            return False
        if walked.passed_over:
            return False
        await self._marks.note_check(check, self._clock_ms())
        _LOGGER.info("copies checked. by=%s marked=%d", by, walked.marked)
        if silent:
            _LOGGER.warning("some bookies left questions unanswered. by=%s silent=%s", by, silent)
        return True

    async def _mark_lacking(self, look: Look, took: Durations) -> Walked:
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        walked = await self._walk.mark_lacking(look)
        took.add(loop.time() - begun_s)
        self._measures.marked_ledgers += walked.marked
        return walked

    async def _is_due(self, check: PeriodicCheck, interval_ms: int) -> bool:
        if not interval_ms:
            return False
        try:
            last_ms = await self._marks.last_check_ms(check)
        except MetadataCorruptError as corrupt:
            _LOGGER.warning("made again. detail=%s", corrupt)
            last_ms = None
        # A clock that was set back must not keep it from being made for long.
        return last_ms is None or not 0 <= self._clock_ms() - last_ms < interval_ms


async def _wait(changed: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(changed.wait(), seconds)
