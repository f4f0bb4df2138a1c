"""Moves what one bookie holds to others: it is to be retired, or will not come back.

Each share is copied first and named in the metadata then, as for a bookie that is lost, under the lock that
auto-recovery takes; so at no moment has a ledger fewer copies than before. Interrupted, what is moved is moved,
and a next run goes on. A ledger that is not closed is given time: its writer leaves a read-only bookie as
soon as it writes. One that is idle for longer is recovered, if another bookie is writable. Source: Apache
``BookKeeperAdmin.recoverBookieData``, ``decommissionBookie``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from bookkeeper_metadata.foundation.bounded import each
from bookkeeper_metadata.foundation.errors import BookKeeperError
from bookkeeper_metadata.foundation.pace import LoopPace
from bookkeeper_metadata.model import Fragment
from bookkeeper_metadata.underreplication import Underreplication
from spark_bookkeeper.ledger.context import LedgerContext
from spark_bookkeeper.ledger.recovery import recover_ledger
from spark_bookkeeper.replication.checking import find_ledgers_of
from spark_bookkeeper.replication.mending import LedgerMender, Mended

_LOGGER = logging.getLogger(__name__)
LEDGERS_AT_ONCE = 4
_LOOK_AGAIN_S = 1.0
"""Between two looks at ledgers that wait for their writers, or for somebody else who mends them."""


@dataclass(slots=True)
class Migrated:
    """What was moved so far."""

    bookie_id: str
    ledgers: int = 0
    """That named the bookie, at the begin or since."""
    moved: int = 0
    """Of these, those that do not any more."""
    copied_bytes: int = 0
    recovered: list[int] = field(default_factory=list)
    """Ledgers that were taken from their writers."""
    left: dict[int, str] = field(default_factory=dict)
    """By ledger that still names the bookie: why."""


class Migration:
    """Of one bookie."""

    def __init__(
        self,
        cluster: LedgerContext,
        bookie_id: str,
        *,
        holder: str,
        targets: Collection[str] = (),
        bytes_per_second: int = 0,
        open_ledger_grace_ms: int = 30_000,
        on_progress: Callable[[Migrated], None] = lambda migrated: None,
    ) -> None:
        """``targets``: the only bookies that may take over; empty: whichever is writable."""
        self._cluster = cluster
        self._marks = Underreplication(cluster.store, cluster.root, random=cluster.random)
        pace = LoopPace(bytes_per_second)
        self._mender = LedgerMender(cluster, pace, leaving=frozenset({bookie_id}), targets=targets)
        self._holder = holder
        self._grace_s = open_ledger_grace_ms / 1000
        self._on_progress = on_progress
        self._open_since_s: dict[int, tuple[Fragment, float]] = {}
        self._migrated = Migrated(bookie_id)
        self._waited_for: set[int] = set()

    async def run(self) -> Migrated:
        """Move everything that can be moved.

        Raises:
            MetadataUnavailableError: the metadata service does not answer; what is moved is moved.
        """
        migrated, seen = self._migrated, set[int]()
        # Until a look finds none but those that cannot be moved: new ledgers may have been created with
        # the bookie meanwhile, or been recovered onto it.
        while todo := await self._list_named():
            seen.update(todo)
            migrated.ledgers = len(seen)
            while todo:
                await self._marks.release_left()
                are_done = await each(self._move, todo, concurrency_max=LEDGERS_AT_ONCE)
                todo = [id for id, is_done in zip(todo, are_done, strict=True) if not is_done]
                if todo:
                    await asyncio.sleep(_LOOK_AGAIN_S)
        migrated.moved = migrated.ledgers - len(migrated.left)
        self._on_progress(migrated)
        return migrated

    async def _list_named(self) -> list[int]:
        """The ledgers that name the bookie and may be moved still."""
        named = await find_ledgers_of(self._cluster, self._migrated.bookie_id)
        return [ledger_id for ledger_id in named if ledger_id not in self._migrated.left]

    async def _move(self, ledger_id: int) -> bool:
        """Whether all is done for this ledger that can be; else it is to be looked at again."""
        migrated = self._migrated
        try:
            async with self._marks.lock(ledger_id, self._holder) as is_held:
                if not is_held:
                    self._say_waiting(ledger_id)
                    return False
                mended = await self._mender.mend(ledger_id)
                if mended.open_fragment is not None:
                    mended = await self._take_over(mended, mended.open_fragment)
        except BookKeeperError as error:
            migrated.left[ledger_id] = f"{error.name}: {error}"
            return True
        migrated.copied_bytes += mended.copied_bytes
        if mended.left:
            migrated.left[ledger_id] = "; ".join(mended.left)
        migrated.moved += mended.is_whole
        self._on_progress(migrated)
        return mended.is_whole or bool(mended.left)

    def _say_waiting(self, ledger_id: int) -> None:
        """Once: it may be for long."""
        if ledger_id not in self._waited_for:
            self._waited_for.add(ledger_id)
            _LOGGER.warning("somebody else mends a ledger: waited for; ledger_id=%d", ledger_id)

    async def _take_over(self, mended: Mended, fragment: Fragment) -> Mended:
        """Recover the ledger if its writer has had its time; else it is looked at again."""
        ledger_id, now_s = mended.ledger_id, asyncio.get_running_loop().time()
        known, since_s = self._open_since_s.setdefault(ledger_id, (fragment, now_s))
        if known != fragment:
            self._open_since_s[ledger_id] = (fragment, now_s)
        if known != fragment or now_s - since_s < self._grace_s:
            return mended
        if not await self._mender.may_take_over(mended):
            return mended
        metadata = (await self._cluster.ledgers.read(ledger_id)).metadata
        await recover_ledger(self._cluster, ledger_id, metadata.password, wants_copies=False)
        self._migrated.recovered.append(ledger_id)
        _LOGGER.warning("ledger taken from its writer; ledger_id=%d", ledger_id)
        again = await self._mender.mend(ledger_id)
        again.copied_bytes += mended.copied_bytes
        return again
