"""ReadHandle: an open ledger, read in order with requests running ahead of the consumer."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from types import TracebackType
from typing import Self

from bookie_server.wire.digest import digest_for
from bookie_server.wire.record import Run
from metadata.errors import BookKeeperError, NoSuchEntryError
from metadata.model import LedgerMetadata, Versioned
from spark_bookkeeper.ledger.cluster import Cluster
from spark_bookkeeper.ledger.entry import Entry, entries_of
from spark_bookkeeper.ledger.fetch import FragmentFetcher
from spark_bookkeeper.ledger.last_confirmed import read_last_confirmed
from spark_bookkeeper.ledger.protocol.quorum import QuorumConfig

_ENTRIES_FIRST_GUESS = 16
"""Entries asked for at once while nothing is known of their size."""


class ReadHandle:
    """Reads one ledger up to its LAC; use within one event loop."""

    def __init__(
        self, cluster: Cluster, ledger_id: int, versioned: Versioned, last_add_confirmed: int
    ) -> None:
        self.ledger_id = ledger_id
        self._cluster = cluster
        self._versioned = versioned
        self._last_add_confirmed = last_add_confirmed
        metadata = versioned.metadata
        self._digest = digest_for(metadata.digest_type, metadata.password)
        self._fetcher = FragmentFetcher(cluster, ledger_id, QuorumConfig.of(metadata), self._digest)
        self._turn = cluster.random.randrange(metadata.write_quorum)
        self._entry_size = self._average_entry_size()

    @property
    def metadata(self) -> LedgerMetadata:
        """As last read; a reader of an open ledger refreshes it with the LAC."""
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
        if not self.is_closed:
            self._versioned = await self._cluster.ledgers.read(self.ledger_id)
            latest = self._versioned.metadata
            if latest.is_closed:
                known = latest.last_entry
            else:
                known = await read_last_confirmed(
                    self._cluster, self.ledger_id, latest, is_fencing=False
                )
            self._last_add_confirmed = max(self._last_add_confirmed, known)
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
        ahead: deque[asyncio.Task[list[Run]]] = deque()
        next_entry = first_entry
        try:
            while ahead or next_entry <= last_entry:
                while (
                    next_entry <= last_entry and len(ahead) < self._cluster.settings.reads_in_flight
                ):
                    end = self._chunk_end(next_entry, last_entry)
                    ahead.append(asyncio.create_task(self._fetch(next_entry, end)))
                    next_entry = end + 1
                for run in await ahead.popleft():
                    yield run
        finally:
            for task in ahead:
                task.cancel()
            await asyncio.gather(*ahead, return_exceptions=True)

    async def close(self) -> None:
        """Nothing is held: the connections are the client's. For symmetry with writers."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def _fetch(self, first_entry: int, last_entry: int) -> list[Run]:
        self._turn += 1
        try:
            runs = await self._fetch_from(first_entry, last_entry)
        except BookKeeperError:
            # Re-replication may have moved the fragment since the metadata was read.
            latest = await self._cluster.ledgers.read(self.ledger_id)
            if latest.metadata.fragments == self.metadata.fragments:
                raise
            self._versioned = latest
            runs = await self._fetch_from(first_entry, last_entry)
        size_bytes = sum(run.size_bytes for run in runs)
        self._entry_size = max(1, size_bytes // (last_entry - first_entry + 1))
        return runs

    async def _fetch_from(self, first_entry: int, last_entry: int) -> list[Run]:
        fragment = self.metadata.fragment_of(first_entry)
        return await self._fetcher.fetch(fragment, first_entry, last_entry, self._turn)

    def _chunk_end(self, first_entry: int, last_entry: int) -> int:
        """Last entry to ask for together with ``first_entry``: one reply's worth, one fragment."""
        count = _ENTRIES_FIRST_GUESS
        if self._entry_size is not None:
            count = max(1, self._cluster.settings.read_size_bytes // self._entry_size)
        end = min(last_entry, first_entry + count - 1)
        for fragment in self.metadata.fragments:
            if first_entry < fragment.first_entry <= end:
                return fragment.first_entry - 1
        return end

    def _average_entry_size(self) -> int | None:
        count = self.metadata.last_entry + 1
        return max(1, self.metadata.length // count) if self.is_closed and count else None
