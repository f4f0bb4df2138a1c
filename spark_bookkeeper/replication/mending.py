"""Mends one ledger: every complete fragment gets back the copies that its metadata promises.

A member that is registered is asked which entries it holds, and gets those it lacks; the place of one
that is not, or that takes nothing, goes to another bookie, which gets the whole share first:

    copy, durably -> compare and set the metadata -> (a crash in between leaves a copy too many)

So at no moment does the metadata name a bookie that lacks what it should have. The last fragment of a
ledger that is not closed belongs to its writer; what is done about that is decided by the caller.

A ledger may have thousands of fragments, and metadata of as many hundred bytes. So a member is asked once
for its list, not once for each share, and small shares are copied by the hundred before the metadata is changed.
What a member loses behind its list it marks the ledger for itself (``IntegrityCheck``): it is named for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from bookie_server.core.shares import Share, shares_of
from bookie_server.wire.messages import SAYS_WHAT_IS_WANTED, EntryList, Status
from bookkeeper_metadata.cookies import CookieStore
from bookkeeper_metadata.errors import NoSuchLedgerError
from bookkeeper_metadata.foundation.pace import LoopPace
from bookkeeper_metadata.foundation.recent import Recent
from bookkeeper_metadata.model import Fragment, LedgerMetadata, Stop, Versioned
from spark_bookkeeper.ledger.context import LedgerContext
from spark_bookkeeper.ledger.errors import DigestMismatchError, EntryUnreadableError
from spark_bookkeeper.ledger.protocol.quorum import QuorumConfig
from spark_bookkeeper.replication.copying import WINDOW_BYTES, LedgerCopier, TargetRefusedError
from spark_bookkeeper.replication.lost_bookies import Patience
from spark_bookkeeper.replication.rules import (
    choose_target,
    open_fragment,
    with_members,
)

_LOGGER = logging.getLogger(__name__)

ROUNDS_MAX = 20
"""Looks at a ledger's metadata, each after somebody else has changed it."""
NAMED_AT_ONCE = 256
"""Shares copied before those who took them are named, but for larger ones. As much is copied in vain at most."""
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


@dataclass(slots=True)
class _Look:
    """One look at a ledger: what its members said, and what is copied and named by nobody yet."""

    mended: Mended
    copier: LedgerCopier
    registered: Collection[str]
    lists: dict[str, EntryList] = field(default_factory=dict)
    """What members said they hold. The next look asks again: by then they may have been given, or have dropped, some."""
    taken: list[tuple[Share, str]] = field(default_factory=list)
    """Shares that are copied, and to whom; the metadata does not say so yet."""
    taken_bytes: int = 0

    @property
    def metadata(self) -> LedgerMetadata:
        """As it was read, or changed by this look."""
        assert self.mended.known is not None
        return self.mended.known.metadata

    @property
    def is_naming_due(self) -> bool:
        """Whether enough is copied that the metadata does not name anybody for."""
        return len(self.taken) >= NAMED_AT_ONCE or self.taken_bytes >= WINDOW_BYTES


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
            # A bookie that does not answer is left with each of its shares.
            mended.left = list(dict.fromkeys(mended.left))
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
        look = _Look(mended, copier, registered)
        shares, at = shares_of(metadata), 0
        while at < len(shares):
            if shares[at].bookie_id in waited_for:
                mended.left.append(f"{shares[at].bookie_id} is away, and waited for")
            else:
                await self._mend_share(look, shares[at])
            if look.is_naming_due:
                await self._put_in_place(look)
                # A bookie may have come into the ensemble of the shares behind it.
                shares = shares_of(look.metadata)
            at += 1
        if look.taken:
            await self._put_in_place(look)
        metadata = look.metadata
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

    async def _mend_share(self, look: _Look, share: Share) -> None:
        mended = look.mended
        if share.bookie_id not in look.registered:
            why = "is to leave" if share.bookie_id in self._leaving else "is away"
            await self._replace(look, share, f"{share.bookie_id} {why}")
            return
        if share.is_empty:
            return
        listed = await self._list_of(look, share.bookie_id)
        if listed.status not in SAYS_WHAT_IS_WANTED:
            # It may hold everything.
            mended.left.append(
                f"{share.bookie_id} does not know what it holds: {listed.status.name}"
            )
            return
        try:
            mended.copied_bytes += await look.copier.copy(share, share.bookie_id, listed.held)
        except TargetRefusedError as refused:
            if refused.status in _WILL_NOT:
                await self._replace(look, share, str(refused))
            else:
                # It may be busy, or about to be gone: no reason to move all that it has.
                mended.left.append(str(refused))
        except _NO_COPY_LEFT as lost:
            mended.left.append(f"{share.bookie_id} lacks an entry: {lost}")

    async def _list_of(self, look: _Look, bookie_id: str) -> EntryList:
        """What a member holds, as it said when it was asked first."""
        listed = look.lists.get(bookie_id)
        if listed is None:
            await self._cluster.prepare((bookie_id,))
            listed = await self._cluster.client(bookie_id).list_entries(look.mended.ledger_id)
            look.lists[bookie_id] = listed
            if listed.status is Status.UNREACHABLE:
                # It may be at another address than it was.
                self._cluster.connections.note_silence()
        return listed

    async def _replace(self, look: _Look, share: Share, why: str) -> None:
        """Have another bookie take over the share; it is named by :meth:`_put_in_place`."""
        mended, copier = look.mended, look.copier
        # Of this ensemble one may have taken another share just now.
        members_soon = [to for other, to in look.taken if other.fragment == share.fragment]
        refused: dict[str, str] = {}
        while True:
            target = choose_target(
                share.fragment,
                await self._candidates(),
                self._cluster.random,
                own=self._own,
                refused=(*refused, *members_soon),
            )
            if target is None:
                others = "".join(f"; {each}" for each in refused.values())
                mended.left.append(f"{why}, and no other bookie can take its place{others}")
                return
            try:
                copied_bytes = await copier.copy(share, target)
            except TargetRefusedError as error:
                refused[target] = str(error)
                self._cluster.note_refusal(target, error.status)
                continue
            except _NO_COPY_LEFT as lost:
                # Nobody may be named who lacks an entry: its absence there would be believed.
                mended.left.append(f"{why}, and what it held cannot all be had: {lost}")
                return
            mended.copied_bytes += copied_bytes
            look.taken.append((share, target))
            look.taken_bytes += copied_bytes
            return

    async def _put_in_place(self, look: _Look) -> None:
        """Name those that have taken shares."""
        mended, taken = look.mended, look.taken
        known = mended.known
        assert known is not None

        def transform(metadata: LedgerMetadata) -> LedgerMetadata | Stop[str]:
            # Who drops a copy too many of a closed ledger renews its metadata before: what was copied there earlier
            # may be gone, though nothing else has changed.
            if metadata.is_closed and metadata is not known.metadata:
                return Stop("it was changed meanwhile")
            return with_members(metadata, taken)

        outcome = await self._cluster.ledgers.update(mended.ledger_id, transform, known=known)
        if isinstance(outcome, Stop):
            _LOGGER.info(
                "copied in vain; ledger_id=%d shares=%d reason=%s",
                mended.ledger_id,
                len(taken),
                outcome.reason,
            )
            raise _ChangedMeanwhileError
        mended.known = outcome
        for share, target in taken:
            first_entry = share.fragment.first_entry
            mended.replaced.append((first_entry, share.bookie_id, target))
            _LOGGER.info(
                "copies have a new place; ledger_id=%d first_entry=%d from=%s to=%s",
                mended.ledger_id,
                first_entry,
                share.bookie_id,
                target,
            )
        look.taken, look.taken_bytes = [], 0
        await self._check_named(mended.ledger_id, taken)

    async def _check_named(self, ledger_id: int, named: Sequence[tuple[Share, str]]) -> None:
        """If its disk was lost in between, a bookie's limbo covers only what it was named for already."""
        for target in dict.fromkeys(target for _, target in named):
            listed = await self._cluster.client(target).list_entries(ledger_id)
            if any(share.lacks(listed.held) for share, by in named if by == target):
                raise _ChangedMeanwhileError
