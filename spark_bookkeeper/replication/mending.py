"""Mends one ledger: every complete fragment gets back the copies that its metadata promises.

A member that is registered is asked which entries it holds, and gets those it lacks; the place of one
that is not, or that takes nothing, goes to another bookie, which gets the whole share first:

    copy, durably -> compare and set the metadata -> (a crash in between leaves a copy too many)

So at no moment does the metadata name a bookie that lacks what it should have. The last fragment of a
ledger that is not closed belongs to its writer; what is done about that is decided by the caller.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from dataclasses import dataclass, field

from bookie_server.core.shares import Share, shares_of
from bookie_server.wire.messages import SAYS_WHAT_IS_WANTED, Status
from bookkeeper_metadata.cookies import CookieStore
from bookkeeper_metadata.errors import NoSuchLedgerError
from bookkeeper_metadata.foundation.pace import LoopPace
from bookkeeper_metadata.foundation.recent import Recent
from bookkeeper_metadata.model import Fragment, LedgerMetadata, Stop, Versioned
from spark_bookkeeper.ledger.context import LedgerContext
from spark_bookkeeper.ledger.errors import DigestMismatchError, EntryUnreadableError
from spark_bookkeeper.ledger.protocol.quorum import QuorumConfig
from spark_bookkeeper.replication.copying import LedgerCopier, TargetRefusedError
from spark_bookkeeper.replication.lost_bookies import Patience
from spark_bookkeeper.replication.rules import (
    choose_target,
    open_fragment,
    with_member,
)

_LOGGER = logging.getLogger(__name__)

ROUNDS_MAX = 20
"""Looks at a ledger's metadata, each after somebody else has changed it."""
_RECENT_S = 1.0
"""How old the answer may be to who is registered, writable, known."""
_WILL_NOT = frozenset({Status.READ_ONLY, Status.CONFLICT, Status.UNAUTHORIZED, Status.DELETED})
"""Of a recovery add: the bookie will not take it for long, or never."""
_NO_COPY_LEFT = (DigestMismatchError, EntryUnreadableError)


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
    known: Versioned | None = None
    """The metadata when it was read, or changed, last."""

    @property
    def is_whole(self) -> bool:
        """Whether every copy is where the metadata promises it."""
        return not self.left and self.open_fragment is None


class _ChangedMeanwhileError(Exception):
    """What is missing has to be found anew: the metadata changed, or a bookie lost what it was given."""


class LedgerMender:
    """Mends ledgers of one cluster; several at once do not disturb each other."""

    def __init__(
        self,
        cluster: LedgerContext,
        pace: LoopPace,
        own: str | None = None,
        *,
        leaving: Collection[str] = (),
        targets: Collection[str] = (),
        patience: Patience | None = None,
    ) -> None:
        """``own``: the bookie beside which this runs; it takes what it can before others do.

        ``leaving``: bookies whose shares others are to take over, though they may be there. ``targets``:
        the only ones that may; empty: whichever is writable. ``patience``: with a single bookie that is lost.
        """
        self._cluster = cluster
        self._pace = pace
        self._own = own
        self._leaving = frozenset(leaving)
        self._targets = frozenset(targets)
        self._patience = patience
        # Small ledgers are mended by the hundred a second, and most of that would be the same questions. An answer
        # that has become wrong costs a try: who is gone does not answer, and metadata is compared and set.
        self._registered = Recent(cluster.registry.list_registered_ids, _RECENT_S)
        self._writable = Recent(cluster.usable_bookies, _RECENT_S)
        self._known = Recent(CookieStore(cluster.store, cluster.root).bookie_ids, _RECENT_S)

    def look_around(self) -> None:
        """Bookies came or went: have the next ledger be mended with those that are there now."""
        for each in (self._registered, self._writable, self._known):
            each.forget()

    async def mend(self, ledger_id: int) -> Mended:
        """Give the ledger back what it lacks, as far as that is possible now.

        Raises:
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
        mended.known = await self._cluster.ledgers.read(mended.ledger_id)
        metadata = mended.known.metadata
        if open_fragment(metadata) is not None or any(
            each.is_empty for each in shares_of(metadata)
        ):
            # Of these nobody is asked: an old answer would have a ledger be whole that has lost a member.
            self._registered.forget()
        registered = await self._registered.get() - self._leaving
        waited_for = await self._waited_for(registered)
        copier = LedgerCopier(self._cluster, mended.ledger_id, metadata, self._pace)
        shares, at = shares_of(metadata), 0
        while at < len(shares):
            if shares[at].bookie_id in waited_for:
                mended.left.append(f"{shares[at].bookie_id} is away, and waited for")
                changed = None
            else:
                changed = await self._mend_share(mended, copier, shares[at], registered)
            if changed is not None:
                # A bookie may have come into the ensemble of the shares behind it.
                metadata, shares = changed, shares_of(changed)
            at += 1
        last = open_fragment(metadata)
        if last is not None and not (registered | waited_for).issuperset(last.ensemble):
            mended.open_fragment = last

    async def may_take_over(self, mended: Mended) -> bool:
        """Whether the ledger's writer may be ended now, for nothing of this may have changed since it was mended.

        A member of its last fragment is away, those that are there are enough to recover it - else it would be in
        recovery for ever - and another bookie could take the place. What speaks against it is told in ``left``.

        Raises:
            NoSuchLedgerError: it was deleted.
        """
        await self._cluster.ledgers.sync()
        metadata = (await self._cluster.ledgers.read(mended.ledger_id)).metadata
        there = await self._cluster.registry.list_registered_ids()
        fragment = open_fragment(metadata)
        if fragment is None or fragment != mended.open_fragment:
            return False
        ensemble = fragment.ensemble
        if there.difference(self._leaving).issuperset(ensemble):
            return False
        answering = {position for position, bookie in enumerate(ensemble) if bookie in there}
        if not QuorumConfig.of(metadata).covers(answering):
            mended.left.append("too few of its bookies are there to recover it from its writer")
            return False
        if not await self._candidates() - set(ensemble):
            mended.left.append(
                "no bookie is writable that could take the place of one that is away"
            )
            return False
        return True

    async def _candidates(self) -> set[str]:
        """The bookies that may take over what others cannot keep."""
        writable = await self._writable.get() - self._cluster.quarantined()
        return (writable & self._targets if self._targets else writable) - self._leaving

    async def _waited_for(self, registered: Collection[str]) -> frozenset[str]:
        if self._patience is None or not self._patience.delay_s:
            return frozenset()
        lost = frozenset(await self._known.get()).difference(registered)
        return self._patience.waited_for(lost, asyncio.get_running_loop().time())

    async def _mend_share(
        self, mended: Mended, copier: LedgerCopier, share: Share, registered: Collection[str]
    ) -> LedgerMetadata | None:
        """Returns the metadata if that had to be changed."""
        if share.bookie_id not in registered:
            why = "is to leave" if share.bookie_id in self._leaving else "is away"
            return await self._replace(mended, copier, share, f"{share.bookie_id} {why}")
        if share.is_empty:
            return None
        await self._cluster.prepare((share.bookie_id,))
        listed = await self._cluster.client(share.bookie_id).list_entries(mended.ledger_id)
        if listed.status is Status.UNREACHABLE:
            # It may be at another address than it was.
            self._cluster.connections.note_silence()
        if listed.status not in SAYS_WHAT_IS_WANTED:
            # It may hold everything.
            mended.left.append(
                f"{share.bookie_id} does not know what it holds: {listed.status.name}"
            )
            return None
        try:
            mended.copied_bytes += await copier.copy(share, share.bookie_id, listed.held)
        except TargetRefusedError as refused:
            if refused.status in _WILL_NOT:
                return await self._replace(mended, copier, share, str(refused))
            # It may be busy, or about to be gone: no reason to move all that it has.
            mended.left.append(str(refused))
        except _NO_COPY_LEFT as lost:
            mended.left.append(f"{share.bookie_id} lacks an entry: {lost}")
        return None

    async def _replace(
        self, mended: Mended, copier: LedgerCopier, share: Share, why: str
    ) -> LedgerMetadata | None:
        """Have another bookie take over the share."""
        refused: dict[str, str] = {}
        while True:
            target = choose_target(
                share.fragment,
                await self._candidates(),
                self._cluster.random,
                own=self._own,
                refused=refused,
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
            except _NO_COPY_LEFT as lost:
                # Nobody may be named who lacks an entry: its absence there would be believed.
                mended.left.append(f"{why}, and what it held cannot all be had: {lost}")
                return None
            return await self._put_in_place(mended, share, target)

    async def _put_in_place(self, mended: Mended, share: Share, target: str) -> LedgerMetadata:
        known = mended.known
        assert known is not None

        def transform(metadata: LedgerMetadata) -> LedgerMetadata | Stop[str]:
            # Who drops a copy too many of a closed ledger renews its metadata before: what was copied there earlier
            # may be gone, though nothing else has changed.
            if metadata.is_closed and metadata is not known.metadata:
                return Stop("it was changed meanwhile")
            return with_member(metadata, share, target)

        outcome = await self._cluster.ledgers.update(mended.ledger_id, transform, known=known)
        if isinstance(outcome, Stop):
            _LOGGER.info(
                "copied in vain; ledger_id=%d to=%s reason=%s",
                mended.ledger_id,
                target,
                outcome.reason,
            )
            raise _ChangedMeanwhileError
        mended.known = outcome
        first_entry = share.fragment.first_entry
        mended.replaced.append((first_entry, share.bookie_id, target))
        _LOGGER.info(
            "copies have a new place; ledger_id=%d first_entry=%d from=%s to=%s",
            mended.ledger_id,
            first_entry,
            share.bookie_id,
            target,
        )
        # If its disk was lost in between, its limbo covers only what it was named for already.
        listed = await self._cluster.client(target).list_entries(mended.ledger_id)
        if share.lacks(listed.held):
            raise _ChangedMeanwhileError
        return outcome.metadata
