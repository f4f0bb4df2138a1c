"""LedgerContext: what every ledger operation stands on - metadata, bookies, settings, randomness.

A bookie that failed one writer is in quarantine for a while: no writer of this client chooses it
unless it must.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet
from contextlib import ExitStack, suppress
from random import Random
from typing import Self

from bookie_server.client.interface import BookieClient
from bookie_server.wire.messages import Status
from bookkeeper_metadata.bookies import BookieRegistry
from bookkeeper_metadata.cookies import CookieStore
from bookkeeper_metadata.endpoints import BookieServiceInfo
from bookkeeper_metadata.errors import MetadataUnavailableError
from bookkeeper_metadata.foundation.errors import BookKeeperError
from bookkeeper_metadata.ledgers import LedgerStore
from bookkeeper_metadata.model import Stop, Transform, Versioned
from bookkeeper_metadata.paths import LedgerLayout
from bookkeeper_metadata.store.interface import MetadataStore
from bookkeeper_metadata.underreplication import Underreplication
from spark_bookkeeper.ledger.connections import Connections, MakeClient
from spark_bookkeeper.ledger.errors import NotEnoughBookiesError
from spark_bookkeeper.ledger.measures import ClientMeasures
from spark_bookkeeper.ledger.protocol import placement
from spark_bookkeeper.ledger.protocol.quorum import QuorumConfig
from spark_bookkeeper.settings import ClientSettings

_LOGGER = logging.getLogger(__name__)
_LOOK_FOR_BOOKIES_AGAIN_S = 5.0
"""How often one that waits for bookies looks for them, whatever its watch says, which may be late."""

_LOOK_SPREAD_S = 0.25
_ASK_SUSPECT_S = 0.5
"""How long a new ledger waits for the word of a bookie that failed a writer before."""


class LedgerContext:
    """Made on, and used from, one event loop."""

    def __init__(
        self,
        store: MetadataStore,
        root: str,
        *,
        settings: ClientSettings,
        random: Random,
        make_client: MakeClient,
        layout: LedgerLayout | None = None,
        measures: ClientMeasures | None = None,
    ) -> None:
        """``layout`` is the cluster's, where it was read already."""
        self.measures = measures or ClientMeasures()
        self.store = store
        self.root = root
        self.settings = settings
        self.random = random
        self.ledgers = LedgerStore(store, root, random=random, layout=layout)
        self.registry = BookieRegistry(store, root)
        self.connections = Connections(self.registry, settings, make_client)
        self._quarantined_until_s: dict[str, float] = {}
        self._lowered: set[tuple[int, int]] = set()
        """Ensemble sizes asked for and had instead that were logged."""

    async def usable_bookies(self) -> set[str]:
        """Ids of the bookies that take new entries now, over a transport we speak."""
        return self._reachable(await self._read_registrations())

    async def choose_ensemble(self, wanted: QuorumConfig) -> placement.FirstEnsemble:
        """Bookies for a new ledger, with places held for known ones that are away where it must be.

        Waits up to ``bookie_wait_timeout_ms`` for bookies that are known, if too many are away.

        Raises:
            NotEnoughBookiesError: fewer are known, or did not come back in time.
            MetadataUnavailableError: the metadata service did not say which bookies are registered,
                at once, or when the wait was over.
        """
        loop = asyncio.get_running_loop()
        until_s = loop.time() + self.settings.bookie_wait_timeout_ms / 1000
        async with self.wait_for_bookies() as waiting:
            while True:
                left_s = until_s - loop.time()
                try:
                    first = await self._choose_now(wanted)
                except MetadataUnavailableError:
                    # Who waits for bookies waits for word of them as well: what took them away may have
                    # taken both.
                    if not waiting.has_begun or left_s <= 0:
                        raise
                except NotEnoughBookiesError as error:
                    if not error.away or left_s <= 0:
                        raise
                    if not waiting.has_begun:
                        _LOGGER.warning("waiting for bookies up to %g s; %s", left_s, error)
                        await waiting.begin()
                        continue  # one may have come before the watch began
                else:
                    self._warn_if_lowered(wanted, len(first.members))
                    return await self._without_silent(first, wanted)
                await waiting.begin()
                await waiting.wait_for_change(min(left_s, _LOOK_FOR_BOOKIES_AGAIN_S))

    async def _choose_now(self, wanted: QuorumConfig) -> placement.FirstEnsemble:
        writable, away = await self.usable_bookies(), frozenset[str]()
        # Asked only now: as long as there are enough, nobody needs to know who is missing.
        if len(writable) < wanted.write_quorum:
            writable, away = await self._usable_and_away()
        return placement.choose_ensemble(
            wanted,
            writable,
            self.random,
            away=away,
            avoided=self.quarantined(),
            writable_min=self.settings.min_write_quorum,
        )

    async def _without_silent(
        self, first: placement.FirstEnsemble, wanted: QuorumConfig
    ) -> placement.FirstEnsemble:
        """Ask members that failed a writer lately whether they are there again.

        One that was killed stays registered until its session expires. What a ledger would send it
        fills the writer's memory until that is given up, and so for each new ledger.
        """
        suspects = sorted(self.quarantined().intersection(first.members) - first.held)
        answers = await asyncio.gather(*map(self._is_there, suspects))
        silent = [each for each, answer in zip(suspects, answers, strict=True) if not answer]
        if not silent:
            return first
        return placement.without_silent(first, silent, wanted, self.settings.min_write_quorum)

    async def _is_there(self, bookie_id: str) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(_ASK_SUSPECT_S):
                return await self.client(bookie_id).info() is not None
        return False

    def wait_for_bookies(self) -> WaitForBookies:
        """For one that has too few of them; use it with ``async with``."""
        return WaitForBookies(self.registry, self.random)

    def _warn_if_lowered(self, wanted: QuorumConfig, size: int) -> None:
        """Say once that ledgers are spread over fewer bookies than somebody asked for."""
        if size >= wanted.ensemble_size or (wanted.ensemble_size, size) in self._lowered:
            return
        self._lowered.add((wanted.ensemble_size, size))
        _LOGGER.warning(
            "ledgers are spread over fewer bookies than asked for, as no more are writable. "
            "ensemble_size=%d used=%d",
            wanted.ensemble_size,
            size,
        )

    async def _usable_and_away(self) -> tuple[set[str], frozenset[str]]:
        """:meth:`usable_bookies`, and the ids of those that belong to the cluster and take no entries now."""
        cookies = await CookieStore(self.store, self.root).bookie_ids()
        known = frozenset(cookies) | frozenset(await self.registry.readonly())
        # Both from one look, behind the others: one that comes back meanwhile must not be in neither.
        registered = await self._read_registrations()
        # One that is there but speaks no protocol of ours never will.
        return self._reachable(registered), known - frozenset(registered)

    def _reachable(self, bookies: Mapping[str, BookieServiceInfo]) -> set[str]:
        return {each for each, info in bookies.items() if self.connections.endpoint_of(info)}

    async def _read_registrations(self) -> dict[str, BookieServiceInfo]:
        bookies = await self.registry.writable()
        self.connections.remember(bookies)
        return bookies

    async def replace_bookies(
        self,
        ensemble: tuple[str, ...],
        failed: Mapping[int, str],
        *,
        excluded: AbstractSet[str] = frozenset(),
    ) -> placement.Replacement:
        """``ensemble`` with other bookies in as many of the ``failed`` positions as are available.

        None of the ``excluded`` takes a position. Those in quarantine do where nobody else can.

        Raises:
            MetadataUnavailableError: the metadata service did not say which bookies are registered.
        """
        writable = await self.usable_bookies() - excluded
        return placement.replace_bookies(
            ensemble, failed, writable, self.random, avoided=self.quarantined()
        )

    def note_refusal(self, bookie_id: str, status: Status) -> None:
        """A bookie did not take an add: whether others should avoid it depends on its answer."""
        # In limbo it lacks records of one ledger, and serves every other.
        if status is not Status.LIMBO:
            self.quarantine(bookie_id, is_full=status is Status.READ_ONLY)

    def quarantine(self, bookie_id: str, *, is_full: bool = False) -> None:
        """Avoid a bookie that just failed, for ``bookie_quarantine_ms``.

        One that is full only until it is registered as read-only. As soon as it has room again it
        is as good as any other, also for the ledgers that it has refused.
        """
        settings = self.settings
        duration_ms = (
            settings.ensemble_change_retry_ms if is_full else settings.bookie_quarantine_ms
        )
        until_s = asyncio.get_running_loop().time() + duration_ms / 1000
        known_s = self._quarantined_until_s.get(bookie_id, 0.0)
        self._quarantined_until_s[bookie_id] = max(known_s, until_s)

    def quarantined(self) -> frozenset[str]:
        """Bookies to avoid for now."""
        now_s = asyncio.get_running_loop().time()
        return frozenset(b for b, until_s in self._quarantined_until_s.items() if until_s > now_s)

    def client(self, bookie_id: str) -> BookieClient:
        """The connection to a bookie; see :meth:`prepare`."""
        return self.connections.client(bookie_id)

    async def prepare(self, bookie_ids: tuple[str, ...]) -> None:
        """Look up the addresses of these bookies unless they are known; call it before :meth:`client`."""
        await self.connections.prepare(bookie_ids)

    async def update(
        self, ledger_id: int, transform: Transform[BookKeeperError], known: Versioned
    ) -> Versioned:
        """Change a ledger's metadata by compare-and-set; raises the error a transform stops with.

        Raises: as :func:`bookkeeper_metadata.update.update_metadata`, and the transform's error.
        """
        outcome = await self.ledgers.update(ledger_id, transform, known=known)
        if isinstance(outcome, Stop):
            raise outcome.reason
        return outcome

    async def mark_lacking(self, ledger_id: int, bookie_ids: Collection[str]) -> None:
        """Have the copies of a closed ledger made that these bookies missed, if there is somebody who does."""
        marks = Underreplication(self.store, self.root, random=self.random)
        try:
            if await marks.is_attended():
                now_ms = time.time_ns() // 1_000_000
                await marks.mark(ledger_id, sorted(bookie_ids), now_ms=now_ms)
        except BookKeeperError as error:
            # An auditor's look at all ledgers finds it, too.
            _LOGGER.warning(
                "copies are missing, and not marked. ledger_id=%d detail=%s", ledger_id, error
            )

    async def close(self) -> None:
        """Close every connection; the metadata store is its owner's to close."""
        await self.connections.close()


class WaitForBookies:
    """One wait, until the registrations change or for so long; its watch ends with it.

    Whoever waits looks again by itself, for a watch may be late, and of a bookie that is restarted before
    its session expired it may see nothing.
    """

    def __init__(self, registry: BookieRegistry, random: Random) -> None:
        self._registry = registry
        self._random = random
        self._stack = ExitStack()
        self._has_changed = asyncio.Event()
        self._is_watching = False
        self.has_begun = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stack.close()

    async def begin(self) -> None:
        """Watch the registrations from now on; called again, only if the metadata service was away."""
        self.has_begun = True
        if self._is_watching:
            return
        with suppress(MetadataUnavailableError):
            self._stack.callback(await self._registry.watch(lambda *_: self._has_changed.set()))
            self._is_watching = True
            self._has_changed.clear()  # it has only told how they stand

    async def wait_for_change(self, seconds_max: float) -> None:
        """Wait until a bookie comes or goes, but no longer than this."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._has_changed.wait(), seconds_max)
            # A thousand tasks may wait for the same bookie: they do not all ask in one moment.
            await asyncio.sleep(self._random.uniform(0, min(seconds_max, _LOOK_SPREAD_S)))
        self._has_changed.clear()
