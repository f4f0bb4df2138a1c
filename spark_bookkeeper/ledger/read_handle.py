"""ReadHandle: an open ledger, read in order with requests running ahead of the consumer.

What is read is confirmed, and the LAC of a handle never falls; only ``read_unconfirmed`` reaches
beyond it, for callers who can live with entries that a recovery may still cut off.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from dataclasses import dataclass

from bookie_server.wire.digest import digest_for
from bookie_server.wire.record import RECORD_OVERHEAD, Run
from bookkeeper_metadata.errors import MetadataUnavailableError
from bookkeeper_metadata.foundation.closing import AsyncClosing
from bookkeeper_metadata.foundation.errors import BookKeeperError
from bookkeeper_metadata.foundation.invariant import invariant
from bookkeeper_metadata.foundation.tasks import end_tasks
from bookkeeper_metadata.model import Fragment, LedgerMetadata, Versioned
from spark_bookkeeper.ledger.context import LedgerContext
from spark_bookkeeper.ledger.entry import Entry, entries_of
from spark_bookkeeper.ledger.errors import (
    DigestMismatchError,
    EntryUnreadableError,
    NoSuchEntryError,
)
from spark_bookkeeper.ledger.fetch import Fetched, FragmentFetcher
from spark_bookkeeper.ledger.last_confirmed import read_last_confirmed
from spark_bookkeeper.ledger.protocol.quorum import QuorumConfig
from spark_bookkeeper.ledger.protocol.read_rules import absent_or_unreadable
from spark_bookkeeper.ledger.tail import IdleTime, MetadataFollower, NewsPoller, wait_for_news

_ENTRIES_FIRST_GUESS = 16
"""Entries asked for at once while nothing is known of their size."""
_TAIL_RETRIES_MAX = 5
_TAIL_RETRY_S = 0.2
"""A tail waits this long, and twice as long each time, for replicas of a confirmed entry to return:
about 6 s, more than a restart takes."""


class ReadHandle(AsyncClosing):
    """Reads one ledger up to its LAC; use within one event loop."""

    def __init__(
        self, cluster: LedgerContext, ledger_id: int, versioned: Versioned, last_add_confirmed: int
    ) -> None:
        self.ledger_id = ledger_id
        self._cluster = cluster
        self._versioned = versioned
        self._last_add_confirmed = last_add_confirmed
        metadata = versioned.metadata
        self._digest = digest_for(metadata.digest_type, metadata.password)
        self._fetcher = FragmentFetcher(cluster, ledger_id, QuorumConfig.of(metadata), self._digest)
        # At random, or all readers of a ledger would ask the same replica first.
        self._turn = cluster.random.randrange(metadata.write_quorum)
        self._entry_size = self._average_entry_size()

    @property
    def metadata(self) -> LedgerMetadata:
        """The ledger's metadata as last read; for an open ledger it is read again with the LAC."""
        return self._versioned.metadata

    @property
    def digest_size(self) -> int:
        """Bytes of digest in front of each payload in :meth:`read_runs`' records."""
        return self._digest.size

    @property
    def is_closed(self) -> bool:
        """Whether the ledger is CLOSED: nothing will ever be added."""
        return self.metadata.is_closed

    @property
    def length(self) -> int:
        """Payload bytes of a closed ledger; 0 for an open one."""
        return self.metadata.length

    @property
    def last_add_confirmed(self) -> int:
        """The last entry this handle may read; -1: none yet."""
        return self._last_add_confirmed

    async def read_last_add_confirmed(self) -> int:
        """Ask the metadata and the bookies how far the ledger is confirmed now; never falls.

        Raises:
            EntryUnreadableError: too few bookies answered to be sure.
        """
        # The metadata first: a ledger that was closed needs no bookie, and of one that was not it
        # names the ensemble to ask.
        if not self.is_closed:
            self._learn(await self._read_again())
        if not self.is_closed:
            confirmed = await read_last_confirmed(
                self._cluster, self.ledger_id, self.metadata, is_fencing=False
            )
            self._raise_confirmed(confirmed)
        return self._last_add_confirmed

    async def read(self, first_entry: int, last_entry: int) -> AsyncGenerator[Entry, None]:
        """Entries ``first_entry..last_entry``, in order, all of them or an error.

        Raises:
            NoSuchEntryError: the range reaches beyond the LAC; nothing was read.
            DigestMismatchError, EntryUnreadableError: no replica returned an entry.
        """
        async for run in self.read_runs(first_entry, last_entry):
            for entry in entries_of(run, self._digest.size):
                yield entry

    async def read_runs(self, first_entry: int, last_entry: int) -> AsyncGenerator[Run, None]:
        """As :meth:`read`, in runs of verified records: the unit of work for bulk readers."""
        if first_entry < 0 or last_entry > self._last_add_confirmed:
            asked = first_entry if first_entry < 0 else last_entry
            raise NoSuchEntryError(self.ledger_id, asked, self._last_add_confirmed)
        ahead: deque[asyncio.Task[_Chunk]] = deque()
        next_entry, cuts = first_entry, 0
        try:
            while ahead or next_entry <= last_entry:
                while (
                    next_entry <= last_entry and len(ahead) < self._cluster.settings.reads_in_flight
                ):
                    end = self._chunk_end(next_entry, last_entry)
                    ahead.append(asyncio.create_task(self._fetch(next_entry, end)))
                    next_entry = end + 1
                chunk = await ahead.popleft()
                for run in chunk.runs:
                    yield run
                if chunk.next_entry > chunk.last_entry:
                    cuts = 0
                    continue
                cuts += 1
                if cuts < self._cluster.settings.reads_in_flight:
                    rest = self._fetch(chunk.next_entry, chunk.last_entry)
                    ahead.appendleft(asyncio.create_task(rest))
                else:
                    # Again and again: its entries are much larger than those before. They are not read one reply after
                    # another, and those that were asked for behind it are as large.
                    await end_tasks(ahead)
                    ahead.clear()
                    next_entry, cuts = chunk.next_entry, 0
        finally:
            # The consumer may stop in the middle, with requests under way that nobody would wait
            # for.
            await end_tasks(ahead)

    async def read_unconfirmed(
        self, first_entry: int, last_entry: int
    ) -> AsyncGenerator[Entry, None]:
        """Entries ``first_entry..last_entry``, in order, whether they are confirmed or not.

        An entry beyond the LAC may be read now and be gone after a recovery.

        Raises:
            NoSuchEntryError: every bookie of an entry's write set says that it has none, or the ledger
                is closed before it; what precedes it was read.
            DigestMismatchError, EntryUnreadableError: no replica returned an entry; it may exist.
        """
        if first_entry < 0:
            raise NoSuchEntryError(self.ledger_id, first_entry, self._last_add_confirmed)
        next_entry = first_entry
        while next_entry <= last_entry:
            end, fetched = await self._fetch_unconfirmed(next_entry, last_entry)
            until = fetched.missing[0] - 1 if fetched.missing else end
            for run in fetched.runs:
                if (lac := run.last_add_confirmed()) < run.last_entry:
                    self._raise_confirmed(lac)  # the entry was verified, so its LAC is true
                before = run.between(next_entry, until)
                for entry in entries_of(before, self._digest.size) if before is not None else ():
                    yield entry
            if fetched.missing:
                raise self._why_missing(fetched)
            next_entry = end + 1

    async def tail(
        self, first_entry: int, *, timeout: float | None = None
    ) -> AsyncGenerator[Entry, None]:
        """Entries from ``first_entry`` on, in order, as they are confirmed; ends with the ledger.

        Goes on over ensemble changes and bookies that go away, never beyond the LAC, until the
        ledger is closed and its last entry was returned, or nothing new came for ``timeout`` seconds
        (``None``: for ever).

        Raises:
            NoSuchLedgerError: the ledger was deleted.
            MetadataUnavailableError: the metadata cannot be watched; later its absence ends no tail.
            DigestMismatchError, EntryUnreadableError: no replica returned a confirmed entry, for
                seconds; another tail may go on at that entry.
        """
        async for run in self.tail_runs(first_entry, timeout=timeout):
            for entry in entries_of(run, self._digest.size):
                yield entry

    async def tail_runs(
        self, first_entry: int, *, timeout: float | None = None
    ) -> AsyncGenerator[Run, None]:
        """As :meth:`tail`, in runs of verified records."""
        if first_entry < 0:
            raise NoSuchEntryError(self.ledger_id, first_entry, self._last_add_confirmed)
        follower = MetadataFollower(self._cluster, self.ledger_id, self._versioned)
        poller = NewsPoller(
            self._cluster,
            self.ledger_id,
            digest=self._digest,
            fetcher=self._fetcher,
            turn=self._turn,
        )
        next_entry, retries = first_entry, 0
        idle = IdleTime(timeout)
        try:
            if not self.is_closed:
                await follower.start()
            while True:
                if not self.is_closed:
                    self._learn(follower.latest())  # raises when the ledger is gone
                try:
                    async for run in self.read_runs(next_entry, self._last_add_confirmed):
                        yield run
                        next_entry, retries = run.last_entry + 1, 0
                        idle.restart()
                except (DigestMismatchError, EntryUnreadableError, MetadataUnavailableError):
                    # A confirmed entry exists somewhere: this is about bookies that are away, not
                    # about the ledger. One damaged copy says nothing of those that did not answer.
                    if retries == _TAIL_RETRIES_MAX or idle.is_over:
                        raise
                    await asyncio.sleep(_TAIL_RETRY_S * 2**retries)
                    retries += 1
                    continue
                if self.is_closed:
                    if next_entry <= self._last_add_confirmed:
                        continue  # the metadata read last closed the ledger: entries before its end are left
                    return
                news = await wait_for_news(follower, poller, self.metadata, next_entry, idle)
                if news is None:
                    if idle.is_over:
                        return
                    continue  # there is newer metadata
                # What is confirmed and did not come with the news is read in the next round.
                self._raise_confirmed(news.last_add_confirmed)
                for run in news.runs:
                    yield run
                    next_entry = run.last_entry + 1
                    idle.restart()
        finally:
            await follower.stop()

    async def close(self) -> None:
        """Does nothing, for the connections are the client's; there for symmetry with writers."""

    async def _read_again(self) -> Versioned:
        """The metadata as it is now: a follower that lags names bookies that may deny what others have."""
        await self._cluster.store.sync(self._cluster.root)
        return await self._cluster.ledgers.read(self.ledger_id)

    def _learn(self, versioned: Versioned) -> None:
        # A watch and a read report in any order, and a server may lag behind.
        if versioned.version > self._versioned.version:
            self._versioned = versioned
        metadata = self.metadata
        # A new fragment begins behind the LAC, so all entries before it are confirmed.
        before = metadata.last_fragment.first_entry - 1
        self._raise_confirmed(metadata.last_entry if metadata.is_closed else before)

    def _raise_confirmed(self, entry_id: int) -> None:
        self._last_add_confirmed = max(self._last_add_confirmed, entry_id)

    async def _fetch_unconfirmed(self, first_entry: int, last_entry: int) -> tuple[int, Fetched]:
        """The last entry of a chunk that begins at ``first_entry``, and what was fetched of it."""
        self._turn += 1
        while True:
            fragment = self.metadata.fragment_of(first_entry)
            end = self._chunk_end(first_entry, last_entry)
            fetched = await self._fetch_chunk(fragment, first_entry, end)
            if fetched.postponed:
                end = fetched.postponed[0] - 1
            if not fetched.missing:
                return end, fetched
            # An ensemble change may have given these entries other bookies since the metadata was read.
            self._learn(await self._read_again())
            if self.metadata.fragment_of(fetched.missing[0]) == fragment:
                return end, fetched

    def _why_missing(self, fetched: Fetched) -> BookKeeperError:
        metadata, entry_id = self.metadata, fetched.missing[0]
        if metadata.is_closed and entry_id > metadata.last_entry:
            return NoSuchEntryError(self.ledger_id, entry_id, metadata.last_entry)
        ensemble = metadata.fragment_of(entry_id).ensemble
        return absent_or_unreadable(
            self.ledger_id,
            entry_id,
            fetched.answers,
            write_set=[ensemble[at] for at in QuorumConfig.of(metadata).write_set(entry_id)],
            last_add_confirmed=self._last_add_confirmed,
        )

    async def _fetch(self, first_entry: int, last_entry: int) -> _Chunk:
        self._turn += 1
        moves = self._cluster.connections.moves
        try:
            chunk = await self._fetch_from(first_entry, last_entry)
        except BookKeeperError:
            # Re-replication may have moved the fragment since the metadata was read, or its bookies
            # are at other addresses than they were.
            latest = await self._read_again()
            is_same = latest.metadata.fragments == self.metadata.fragments
            if is_same and not await self._cluster.connections.look_for_moves(moves):
                raise
            self._learn(latest)
            chunk = await self._fetch_from(first_entry, last_entry)
        # Slow to fall: of a few large entries among many small ones some are in every chunk.
        size, before = chunk.entry_size, self._entry_size or chunk.entry_size
        self._entry_size = max(size, (size + before) // 2)
        return chunk

    async def _fetch_from(self, first_entry: int, last_entry: int) -> _Chunk:
        runs: list[Run] = []
        next_entry = first_entry
        while next_entry <= last_entry:
            # One fragment when it was asked for; newer metadata may have divided it.
            end = self._fragment_end(next_entry, last_entry)
            fragment = self.metadata.fragment_of(next_entry)
            fetched = await self._fetch_chunk(fragment, next_entry, end)
            self._fetcher.require(fetched)
            runs += fetched.runs
            next_entry = fetched.postponed[0] if fetched.postponed else end + 1
            count = sum(map(len, runs))
            invariant(count == next_entry - first_entry, "no entry is left out of what was fetched")
            if fetched.postponed:
                break
        return _Chunk(runs, first_entry, next_entry, last_entry)

    async def _fetch_chunk(self, fragment: Fragment, first_entry: int, last_entry: int) -> Fetched:
        """What of these there is room for: entries may be far larger than those they were judged by."""
        fetched = await self._fetcher.fetch_some(
            fragment,
            range(first_entry, last_entry + 1),
            self._turn,
            enough_bytes=self._cluster.settings.read_size_bytes,
        )
        return fetched.before_postponed()

    def _chunk_end(self, first_entry: int, last_entry: int) -> int:
        """Last entry to ask for together with ``first_entry``: one reply's worth, one fragment."""
        count = _ENTRIES_FIRST_GUESS
        if self._entry_size is not None:
            count = max(1, self._cluster.settings.read_size_bytes // self._entry_size)
        return self._fragment_end(first_entry, min(last_entry, first_entry + count - 1))

    def _fragment_end(self, first_entry: int, last_entry: int) -> int:
        """The last of ``first_entry..last_entry`` in the fragment of the first."""
        for fragment in self.metadata.fragments:
            if first_entry < fragment.first_entry <= last_entry:
                return fragment.first_entry - 1
        return last_entry

    def _average_entry_size(self) -> int | None:
        count = self.metadata.last_entry + 1
        if not (self.is_closed and count):
            return None
        return RECORD_OVERHEAD + self._digest.size + self.metadata.length // count


@dataclass(frozen=True, slots=True)
class _Chunk:
    """What was fetched of ``first_entry`` to ``last_entry``: those in front of ``next_entry``."""

    runs: list[Run]
    first_entry: int
    next_entry: int
    last_entry: int

    @property
    def entry_size(self) -> int:
        """Bytes, on average and at least 1."""
        size_bytes = sum(run.size_bytes for run in self.runs)
        return max(1, size_bytes // (self.next_entry - self.first_entry))
