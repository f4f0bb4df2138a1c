"""Walks through all ledgers, and marks those of which a look says that copies are missing.

A look is given a ledger and its metadata, and returns the bookies whose copies are missing. There are three:

* by the registrations: what lost bookies should hold (:class:`~spark_bookkeeper.replication.auditor.Auditor`);
* by lists: whoever should hold entries is asked which it holds, which finds what a writer left out;
* by ends: the first and the last entry of each share are read, which finds what a list does not know.

A bookie that does not answer is not said to lack anything: it may have everything. A mark of a ledger that
lacks nothing costs a look by whoever mends it. Source: Apache ``AuditorCheckAllLedgersTask``, ``AuditorReplicasCheckTask``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import NamedTuple

from bookie_server.core.shares import Share, shares_by_bookie
from bookie_server.wire.digest import Digest, digest_for
from bookie_server.wire.messages import SAYS_WHAT_IS_WANTED, ReadRequest, Status
from bookkeeper_metadata.cookies import CookieStore
from bookkeeper_metadata.errors import (
    MetadataAccessError,
    MetadataConflictError,
    MetadataCorruptError,
    MetadataUnavailableError,
    NoSuchLedgerError,
)
from bookkeeper_metadata.foundation.bounded import each
from bookkeeper_metadata.foundation.errors import BookKeeperError
from bookkeeper_metadata.foundation.recent import Recent
from bookkeeper_metadata.model import LedgerMetadata
from bookkeeper_metadata.underreplication import Underreplication
from spark_bookkeeper.ledger.context import LedgerContext
from spark_bookkeeper.ledger.fetch import verified_runs

_LOGGER = logging.getLogger(__name__)
LEDGERS_AT_ONCE = 64
READS_PER_LEDGER = 5
_READ_AGAIN_S = 1.0
_RECENT_S = 1.0
"""How old the answer may be to which bookies there are."""
_BATCH = 1_000
"""Ledgers that are listed ahead of what is looked at."""
_HAS_NONE = frozenset({Status.NO_ENTRY, Status.NO_LEDGER, Status.UNKNOWN})
"""Of a read: the bookie is there, and returns no such entry."""
_NOTHING_SAID = frozenset({Status.UNREACHABLE, Status.UNAUTHORIZED})

Look = Callable[[int, LedgerMetadata], Awaitable[Collection[str]]]


class Walked(NamedTuple):
    """What one walk came to."""

    marked: int
    """Ledgers that lack copies."""
    passed_over: int = 0
    """Ledgers that showed a defect: whether they lack anything is not known."""


class LedgerWalk:
    """Marks ledgers of one cluster."""

    def __init__(
        self, cluster: LedgerContext, marks: Underreplication, clock_ms: Callable[[], int]
    ) -> None:
        self._cluster = cluster
        self._marks = marks
        self._clock_ms = clock_ms

    async def mark_lacking(self, look: Look) -> Walked:
        """Look at every ledger, and mark those that lack copies. What this user may not see is said.

        Raises:
            MetadataUnavailableError: some may not be marked.
        """

        # Not on the object: an audit and a check walk side by side.
        passed_over = 0

        async def mark_unless_defective(ledger_id: int, metadata: LedgerMetadata) -> bool:
            nonlocal passed_over
            try:
                return await self._mark(ledger_id, await look(ledger_id, metadata))
            except BookKeeperError:
                raise
            except Exception:
                # A defect that one ledger shows must not keep all others from being healed.
                _LOGGER.exception("a ledger is passed over. ledger_id=%d", ledger_id)
                passed_over += 1
                return False

        refused = list[MetadataAccessError]()
        found = await find_ledgers(self._cluster, mark_unless_defective, refused.append)
        if refused:
            # Whoever makes one such node must not keep all others from being healed.
            _LOGGER.error(
                "what this user may not see is not healed. nodes=%d first=%s",
                len(refused),
                refused[0],
            )
        return Walked(len(found), passed_over)

    async def _mark(self, ledger_id: int, lacking: Collection[str]) -> bool:
        """Whether it is marked, which it is not where nobody lacks anything."""
        if not lacking:
            return False
        try:
            await self._marks.mark(ledger_id, sorted(lacking), now_ms=self._clock_ms())
        except (MetadataCorruptError, MetadataConflictError) as error:
            # One that nobody understands must not keep the others unmarked.
            _LOGGER.error("a ledger is not marked. detail=%s", error)
            return False
        return True


async def find_ledgers(
    cluster: LedgerContext,
    is_wanted: Callable[[int, LedgerMetadata], Awaitable[bool]],
    on_refused: Callable[[MetadataAccessError], None] | None = None,
) -> list[int]:
    """The ledgers that are wanted, by their ids and metadata, ascending; of one that nobody understands that is said.

    With ``on_refused``, which is told of each node that this user may not see, the search goes on behind it.
    """

    async def look_at(ledger_id: int) -> bool:
        try:
            metadata = await _read(cluster, ledger_id)
        except NoSuchLedgerError:
            return False  # deleted meanwhile
        except MetadataCorruptError as corrupt:
            # It must not keep the others from being looked at.
            _LOGGER.error("a ledger is passed over. detail=%s", corrupt)
            return False
        except MetadataAccessError as refused:
            if on_refused is None:
                raise
            on_refused(refused)
            return False
        return await is_wanted(ledger_id, metadata)

    async def look_at_all(ledger_ids: Sequence[int]) -> list[int]:
        are_wanted = await each(look_at, ledger_ids, concurrency_max=LEDGERS_AT_ONCE)
        return [id for id, is_one in zip(ledger_ids, are_wanted, strict=True) if is_one]

    found, batch = list[int](), list[int]()

    def on_hidden(refused: MetadataAccessError, _first: int, _last: int) -> None:
        if on_refused is None:
            raise refused
        on_refused(refused)

    async for ledger_id in cluster.ledgers.list_ids(on_hidden=on_hidden):
        batch.append(ledger_id)
        if len(batch) == _BATCH:
            found += await look_at_all(batch)
            batch.clear()
    return found + await look_at_all(batch)


async def _read(cluster: LedgerContext, ledger_id: int) -> LedgerMetadata:
    """A walk through a million ledgers does not begin anew for every hiccup of the metadata service."""
    for attempt in range(READS_PER_LEDGER):
        try:
            return (await cluster.ledgers.read(ledger_id)).metadata
        except MetadataUnavailableError:
            if attempt == READS_PER_LEDGER - 1:
                raise
            await asyncio.sleep(_READ_AGAIN_S)
    raise AssertionError("the last attempt returns or raises")


async def find_ledgers_of(cluster: LedgerContext, bookie_id: str) -> list[int]:
    """The ledgers whose metadata names this bookie, in whatever fragment."""

    async def names_it(_: int, metadata: LedgerMetadata) -> bool:
        return bookie_id in metadata.bookie_ids

    return await find_ledgers(cluster, names_it)


class CopyChecks:
    """Asks bookies what they hold; one that is not there, and belongs to the cluster no more, holds nothing."""

    def __init__(self, cluster: LedgerContext) -> None:
        self._cluster = cluster
        self._known = Recent(self._list_known_ids, _RECENT_S)
        self.silent: set[str] = set()
        """The bookies that have left a question unanswered since :meth:`begin`."""
        self._answers: dict[str, bool] = {}
        """Whether each bookie answered what it was asked last."""

    def begin(self) -> None:
        """Forget who answered and who did not."""
        self.silent.clear()
        self._answers.clear()

    @property
    def is_unheard(self) -> bool:
        """Whether bookies were asked, and none of them answers any more."""
        return bool(self._answers) and not any(self._answers.values())

    async def by_lists(self, ledger_id: int, metadata: LedgerMetadata) -> set[str]:
        """The bookies that do not list an entry they should hold."""

        async def lacks(bookie_id: str, shares: Sequence[Share]) -> bool:
            listed = await self._cluster.client(bookie_id).list_entries(ledger_id)
            self._note(bookie_id, listed.status)
            return listed.status in SAYS_WHAT_IS_WANTED and any(
                share.lacks(listed.held) for share in shares
            )

        return await self._ask(metadata, lacks)

    async def by_ends(self, ledger_id: int, metadata: LedgerMetadata) -> set[str]:
        """The bookies that do not return the first or the last entry of what they should hold."""
        digest = digest_for(metadata.digest_type, metadata.password)

        async def lacks(bookie_id: str, shares: Sequence[Share]) -> bool:
            for share in shares:
                for entry_id in share.ends:
                    if await self._lacks(bookie_id, ledger_id, entry_id, digest):
                        return True
            return False

        return await self._ask(metadata, lacks)

    async def _ask(
        self,
        metadata: LedgerMetadata,
        lacks: Callable[[str, Sequence[Share]], Awaitable[bool]],
    ) -> set[str]:
        by_bookie = shares_by_bookie(metadata)
        # An auditor waits for bookies that have cookies only.
        gone = by_bookie.keys() - await self._known.get()
        if gone:
            self._known.forget()  # one may have come since
            gone -= await self._known.get()
        await self._cluster.prepare(tuple(by_bookie))
        answers = await asyncio.gather(*(lacks(*asked) for asked in by_bookie.items()))
        found = zip(by_bookie, answers, strict=True)
        return gone.union(bookie_id for bookie_id, is_lacking in found if is_lacking)

    def _note(self, bookie_id: str, *statuses: Status) -> None:
        """Whoever refuses to be asked tells no more than one who is not there."""
        has_answered = not _NOTHING_SAID.issuperset(statuses) or not statuses
        self._answers[bookie_id] = has_answered
        if not has_answered:
            self.silent.add(bookie_id)

    async def _list_known_ids(self) -> set[str]:
        # Registrations last: a bookie is registered behind its cookie.
        cookies = await CookieStore(self._cluster.store, self._cluster.root).bookie_ids()
        return {*cookies, *await self._cluster.registry.list_registered_ids()}

    async def _lacks(self, bookie_id: str, ledger_id: int, entry_id: int, digest: Digest) -> bool:
        request = ReadRequest(ledger_id=ledger_id, first_entry=entry_id, last_entry=entry_id)
        reply = await self._cluster.client(bookie_id).read(request)
        self._note(bookie_id, *(part.status for part in reply.missing if not reply.runs))
        good, bad = verified_runs(reply, request, digest)
        if bad:
            # It will not take another one in its place, which it takes for a second content.
            _LOGGER.error(
                "a copy does not match its digest. ledger_id=%d entry_id=%d bookie_id=%s",
                ledger_id,
                entry_id,
                bookie_id,
            )
        return not good and any(part.status in _HAS_NONE for part in reply.missing)
