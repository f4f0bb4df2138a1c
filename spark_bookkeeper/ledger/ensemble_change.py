"""Ensemble change: replace bookies that failed a writer, in the metadata first.

The state machine has stopped acknowledging (:mod:`.protocol.writer_state`, step 1) and waits. Here:

* quarantine the bookies that failed, so that no other writer chooses them for a while; read-only
  ones only until their registration says so, which is within seconds;
* choose replacements among the writable bookies - or find that there are none, which changes
  nothing and leaves it to the state machine whether the writer can go on;
* compare-and-set: from the LAC + 1 on the new ensemble is in force. It starts a new fragment, or
  takes the last one's place if nothing was acknowledged in that. Only a ledger that is still OPEN
  is changed: IN_RECOVERY or CLOSED means that another client decides, and this writer ends.

A lost reply is no answer. The same change is tried again until the metadata says how it stands:
whatever is acknowledged next must be readable by it. Source: Apache ``LedgerHandle
.ensembleChangeLoop``, ``EnsembleUtils``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress

from bookkeeper_metadata.errors import (
    MetadataConflictError,
    MetadataUnavailableError,
    NoSuchLedgerError,
)
from bookkeeper_metadata.foundation.backoff import back_off
from bookkeeper_metadata.foundation.errors import BookKeeperError
from bookkeeper_metadata.model import LedgerMetadata, Stop, Versioned
from spark_bookkeeper.ledger.context import LedgerContext
from spark_bookkeeper.ledger.errors import LedgerDeletedError
from spark_bookkeeper.ledger.protocol.events import ChangeEnsemble
from spark_bookkeeper.ledger.protocol.placement import Replacement
from spark_bookkeeper.ledger.protocol.transitions import put_in_force


async def change_ensemble(
    cluster: LedgerContext,
    ledger_id: int,
    known: Versioned,
    change: ChangeEnsemble,
    left_alone: AbstractSet[str],
) -> tuple[Versioned, Replacement]:
    """Carry out a change; returns the metadata as it stands, and what was replaced.

    None of those ``left_alone`` takes a position.

    Raises:
        LedgerFencedError, LedgerDeletedError: another client ended this ledger.
        MetadataUnavailableError: no metadata service for ``ensemble_change_timeout_ms``; whether
            the ensemble was changed is not known, so nothing may be acknowledged any more.
    """
    for bookie_id in change.suspects:
        cluster.quarantine(bookie_id)
    for bookie_id in change.full:
        cluster.quarantine(bookie_id, is_full=True)
    unchanged = Replacement(change.ensemble, ())
    try:
        # One limit for all of it: appends wait unacknowledged meanwhile, and their callers learn
        # nothing.
        async with asyncio.timeout(cluster.settings.ensemble_change_timeout_ms / 1000):
            replacement = await _choose(cluster, change, change.excluded | left_alone)
            if replacement is None:
                return known, unchanged
            if replacement.positions:
                return await _commit(cluster, ledger_id, known, change, replacement), replacement
            # Bookies refuse a ledger that they are about to delete, all of them: then nobody could
            # replace anybody, and its writer would wait for bookies in vain.
            with suppress(MetadataUnavailableError):
                # A new session's server may lag behind the ledger's creation.
                await cluster.ledgers.sync()
                await cluster.ledgers.read(ledger_id)
            return known, unchanged
    except NoSuchLedgerError as gone:
        raise LedgerDeletedError(ledger_id) from gone
    except TimeoutError as cause:
        detail = f"ensemble of ledger {ledger_id} could not be changed in time"
        raise MetadataUnavailableError(cluster.store.service, detail) from cause


async def _choose(
    cluster: LedgerContext, change: ChangeEnsemble, excluded: AbstractSet[str]
) -> Replacement | None:
    """Replacements for the failed bookies; None: the metadata service is away, and it can wait."""
    attempt = 0
    while True:
        await back_off(attempt, cluster.random)
        attempt += 1
        try:
            return await cluster.replace_bookies(change.ensemble, change.failed, excluded=excluded)
        except MetadataUnavailableError:
            if not change.is_needed:
                return None


async def _commit(
    cluster: LedgerContext,
    ledger_id: int,
    known: Versioned,
    change: ChangeEnsemble,
    replacement: Replacement,
) -> Versioned:
    def changed(metadata: LedgerMetadata) -> LedgerMetadata | Stop[BookKeeperError]:
        return put_in_force(ledger_id, metadata, change.first_entry, replacement.ensemble)

    attempt = 0
    while True:
        await back_off(attempt, cluster.random)
        attempt += 1
        try:
            return await cluster.update(ledger_id, changed, known)
        except (MetadataUnavailableError, MetadataConflictError):
            # Our change may have been applied: then the next try finds it in the metadata.
            continue


class EnsembleChanger:
    """Runs one writer's ensemble changes, one at a time, and looks for bookies it still misses.

    ``on_changed`` or ``on_failed`` is called when a change has ended, ``on_available`` when a bookie that could
    replace a failed one is available; all on the event loop, and never after :meth:`cancel`.
    """

    def __init__(
        self,
        cluster: LedgerContext,
        ledger_id: int,
        *,
        on_changed: Callable[[Versioned, Replacement], None],
        on_failed: Callable[[BookKeeperError], None],
        on_available: Callable[[], None],
    ) -> None:
        self._cluster = cluster
        self._ledger_id = ledger_id
        self._on_changed = on_changed
        self._on_failed = on_failed
        self._on_available = on_available
        self._failed_until_s: dict[str, float] = {}
        """Bookies that failed this writer lately, and until when that is so."""
        self._left_alone_until_s: dict[str, float] = {}
        """Those that did so twice. The failure of another asks none of them back: bookies that fail at
        once would take turns for ever, each time with a change of the metadata."""
        self._changing: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[None] | None = None

    def begin(self, known: Versioned, change: ChangeEnsemble) -> None:
        """Start a change; the outcome of the one before it has been reported."""
        self._changing = asyncio.create_task(
            self._change(known, change), name=f"ensemble-change-{self._ledger_id}"
        )

    def look_for(
        self,
        ensemble: tuple[str, ...],
        failed: Mapping[int, str],
        excluded: AbstractSet[str],
        *,
        is_needed: bool,
    ) -> None:
        """Look for a replacement of one of ``failed`` from time to time, until there is one.

        None of the ``excluded`` is one. Where it ``is_needed`` any other that is registered will do,
        and registrations are watched; else those in quarantine are left alone. A search that is under way ends: it knows only of what had
        failed when it began, and for some of that there may never be a replacement.
        """
        if self._looking is not None:
            self._looking.cancel()
        self._looking = asyncio.create_task(
            self._look(ensemble, failed, excluded, is_needed=is_needed),
            name=f"replacements-{self._ledger_id}",
        )

    def cancel(self) -> None:
        """Stop; a change that was sent may still be applied."""
        for task in (self._changing, self._looking):
            if task is not None:
                task.cancel()

    async def _change(self, known: Versioned, change: ChangeEnsemble) -> None:
        try:
            versioned, replacement = await change_ensemble(
                self._cluster, self._ledger_id, known, change, self._left_alone(change)
            )
        except BookKeeperError as error:
            self._on_failed(error)
        else:
            self._on_changed(versioned, replacement)

    def _left_alone(self, change: ChangeEnsemble) -> frozenset[str]:
        settings, now_s = self._cluster.settings, asyncio.get_running_loop().time()
        pause_ms = min(settings.ensemble_change_retry_ms, settings.bookie_quarantine_ms)
        until_s = now_s + pause_ms / 1000
        newly = *change.suspects, *change.full
        for bookie_id in newly:
            if self._failed_until_s.get(bookie_id, 0.0) > now_s:
                self._left_alone_until_s[bookie_id] = until_s
            self._failed_until_s[bookie_id] = until_s
        alone = (b for b, each_s in self._left_alone_until_s.items() if each_s > now_s)
        return frozenset((*newly, *alone))

    async def _look(
        self,
        ensemble: tuple[str, ...],
        failed: Mapping[int, str],
        excluded: AbstractSet[str],
        *,
        is_needed: bool,
    ) -> None:
        cluster = self._cluster
        async with cluster.wait_for_bookies() as waiting:
            while True:
                # A writer that has its ack quorum is in no hurry, and may be one of a thousand.
                if is_needed:
                    with suppress(BookKeeperError):
                        await waiting.begin()
                await waiting.wait_for_change(cluster.settings.ensemble_change_retry_ms / 1000)
                avoided = frozenset[str]() if is_needed else cluster.quarantined()
                try:
                    found = await cluster.replace_bookies(
                        ensemble, failed, excluded=excluded | avoided
                    )
                except BookKeeperError:
                    continue  # the metadata service is away; the writer goes on without replacement
                # What was found is only a reason to ask. The change chooses anew, for it may find
                # others by then.
                if found.positions:
                    break
        self._failed_until_s.clear()
        self._left_alone_until_s.clear()  # the change may take whom this look has found
        self._on_available()
