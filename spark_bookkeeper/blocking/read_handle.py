"""ReadHandle for callers without an event loop: the loop reads ahead, the caller iterates."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from types import TracebackType
from typing import Self

from bookie_server.wire.record import Run
from metadata.model import LedgerMetadata
from spark_bookkeeper.blocking.loop_thread import LoopThread
from spark_bookkeeper.ledger import read_handle as aio
from spark_bookkeeper.ledger.entry import Entry, entries_of


class ReadHandle:
    """Reads one ledger up to its LAC."""

    def __init__(self, thread: LoopThread, handle: aio.ReadHandle) -> None:
        self.ledger_id = handle.ledger_id
        self._thread = thread
        self._handle = handle

    @property
    def metadata(self) -> LedgerMetadata:
        """As last read."""
        return self._handle.metadata

    @property
    def is_closed(self) -> bool:
        """Whether the ledger is CLOSED: nothing will ever be added."""
        return self._handle.is_closed

    @property
    def length(self) -> int:
        """Payload bytes of a closed ledger; 0 for an open one."""
        return self._handle.length

    @property
    def last_add_confirmed(self) -> int:
        """The last entry this handle may read; -1: none yet."""
        return self._handle.last_add_confirmed

    def read_last_add_confirmed(self) -> int:
        """See :meth:`spark_bookkeeper.ledger.read_handle.ReadHandle.read_last_add_confirmed`."""
        return self._thread.run(self._handle.read_last_add_confirmed())

    def read(self, first_entry: int, last_entry: int) -> Iterator[Entry]:
        """Entries ``first_entry..last_entry``, in order, all of them or an error.

        Raises:
            NoSuchEntryError: the range reaches beyond the LAC; nothing was read.
            DigestMismatchError, EntryUnreadableError: no replica returned an entry.
        """
        digest_size = self._handle.digest_size
        for run in self._runs(first_entry, last_entry):
            yield from entries_of(run, digest_size)

    def close(self) -> None:
        """Nothing is held: the connections are the client's. For symmetry with writers."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _runs(self, first_entry: int, last_entry: int) -> Iterator[Run]:
        # One hop to the loop per run: while the caller works on one, the loop fetches the next.
        runs = self._handle.read_runs(first_entry, last_entry)
        try:
            while (run := self._thread.run(_next(runs))) is not None:
                yield run
        finally:
            if self._thread.is_usable:
                self._thread.run(runs.aclose())


async def _next(runs: AsyncIterator[Run]) -> Run | None:
    return await anext(runs, None)
