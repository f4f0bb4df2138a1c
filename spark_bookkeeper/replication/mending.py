"""Mends one ledger: every complete fragment gets back the copies that its metadata promises.

A member that is registered is asked which entries it holds, and gets those it lacks; the place of one
that is not, or that takes nothing, goes to another bookie, which gets the whole share first:

    copy, durably -> compare and set the metadata -> (a crash in between leaves a copy too many)

So at no moment does the metadata name a bookie that lacks what it should have. The last fragment of a
ledger that is not closed belongs to its writer; what is done about that is decided by the caller.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass, field

from bookie_server.wire.messages import Status
from bookkeeper_metadata.errors import NoSuchLedgerError
from bookkeeper_metadata.model import Fragment, LedgerMetadata, Stop
from spark_bookkeeper.ledger.context import LedgerContext
from spark_bookkeeper.replication.copying import LedgerCopier, TakePace, TargetRefusedError
from spark_bookkeeper.replication.rules import (
    Share,
    choose_target,
    open_fragment,
    shares_of,
    with_member,
)

_LOGGER = logging.getLogger(__name__)

ROUNDS_MAX = 20
"""Looks at a ledger's metadata, each after somebody else has changed it."""
_HOLDS_SHARE = frozenset({Status.OK, Status.NO_LEDGER})
"""Of a list of entries that says what is there and what is not."""


@dataclass(slots=True)
class Mended:
    """What mending a ledger came to."""

    ledger_id: int
    is_gone: bool = False
    """It was deleted: nothing is left to mend."""
    copied_bytes: int = 0
    replaced: list[tuple[int, str, str]] = field(default_factory=list)
    """Members that others took the place of: first entry of the fragment, before, after."""
    left: list[str] = field(default_factory=list)
    """Why copies are still missing, a line each."""
    open_fragment: Fragment | None = None
    """The last fragment of a ledger that is not closed, if a member of it is away."""

    @property
    def is_whole(self) -> bool:
        """Whether every copy is where the metadata promises it."""
        return not self.left and self.open_fragment is None


class _ChangedMeanwhileError(Exception):
    """Somebody else has changed the metadata: what is missing has to be found anew."""


class LedgerMender:
    """Mends ledgers of one cluster, one at a time."""

    def __init__(self, cluster: LedgerContext, pace: TakePace, own: str | None = None) -> None:
        """``own``: the bookie beside which this runs; it takes what it can before others do."""
        self._cluster = cluster
        self._pace = pace
        self._own = own

    async def mend(self, ledger_id: int) -> Mended:
        """Give the ledger back what it lacks, as far as that is possible now.

        Raises:
            DigestMismatchError, EntryUnreadableError: an entry cannot be read from any replica.
            MetadataUnavailableError: the metadata service does not answer. What is copied is copied.
        """
        mended = Mended(ledger_id)
        for _ in range(ROUNDS_MAX):
            mended.left.clear()
            mended.open_fragment = None
            try:
                await self._mend_once(mended)
            except NoSuchLedgerError:
                mended.is_gone = True
            except _ChangedMeanwhileError:
                continue
            return mended
        mended.left.append(f"its metadata changed {ROUNDS_MAX} times")
        return mended

    async def _mend_once(self, mended: Mended) -> None:
        # A member that joined a moment ago must not be taken for one that was replaced.
        await self._cluster.ledgers.sync()
        metadata = (await self._cluster.ledgers.read(mended.ledger_id)).metadata
        registered = await self._cluster.registry.list_registered_ids()
        copier = LedgerCopier(self._cluster, mended.ledger_id, metadata, self._pace)
        shares, at = shares_of(metadata), 0
        while at < len(shares):
            changed = await self._mend_share(mended, copier, shares[at], registered)
            if changed is not None:
                # A bookie may have come into the ensemble of the shares behind it.
                metadata, shares = changed, shares_of(changed)
            at += 1
        last = open_fragment(metadata)
        if last is not None and not registered.issuperset(last.ensemble):
            mended.open_fragment = last

    async def _mend_share(
        self, mended: Mended, copier: LedgerCopier, share: Share, registered: Collection[str]
    ) -> LedgerMetadata | None:
        """Returns the metadata if that had to be changed."""
        if share.bookie_id not in registered:
            return await self._replace(mended, copier, share, f"{share.bookie_id} is away")
        if share.is_empty:
            return None
        await self._cluster.prepare((share.bookie_id,))
        listed = await self._cluster.client(share.bookie_id).list_entries(mended.ledger_id)
        if listed.status not in _HOLDS_SHARE:
            # It may hold everything. In limbo it finds out by itself.
            mended.left.append(
                f"{share.bookie_id} does not know what it holds: {listed.status.name}"
            )
            return None
        try:
            mended.copied_bytes += await copier.copy(share, share.bookie_id, listed.held)
        except TargetRefusedError as refused:
            return await self._replace(mended, copier, share, str(refused))
        return None

    async def _replace(
        self, mended: Mended, copier: LedgerCopier, share: Share, why: str
    ) -> LedgerMetadata | None:
        """Have another bookie take over the share."""
        refused: dict[str, str] = {}
        while True:
            writable = await self._cluster.usable_bookies() - self._cluster.quarantined()
            target = choose_target(
                share.fragment, writable, self._cluster.random, own=self._own, refused=refused
            )
            if target is None:
                others = "".join(f"; {each}" for each in refused.values())
                mended.left.append(f"{why}, and no other bookie can take its place{others}")
                return None
            try:
                mended.copied_bytes += await copier.copy(share, target)
            except TargetRefusedError as error:
                refused[target] = str(error)
                self._cluster.note_refusal(target, error.status)
                continue
            return await self._put_in_place(mended, share, target)

    async def _put_in_place(self, mended: Mended, share: Share, target: str) -> LedgerMetadata:
        def transform(metadata: LedgerMetadata) -> LedgerMetadata | Stop[str]:
            return with_member(metadata, share, target)

        outcome = await self._cluster.ledgers.update(mended.ledger_id, transform)
        if isinstance(outcome, Stop):
            _LOGGER.info(
                "copied in vain; ledger_id=%d to=%s reason=%s",
                mended.ledger_id,
                target,
                outcome.reason,
            )
            raise _ChangedMeanwhileError
        first_entry = share.fragment.first_entry
        mended.replaced.append((first_entry, share.bookie_id, target))
        _LOGGER.info(
            "copies have a new place; ledger_id=%d first_entry=%d from=%s to=%s",
            mended.ledger_id,
            first_entry,
            share.bookie_id,
            target,
        )
        return outcome.metadata
