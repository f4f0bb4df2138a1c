"""ReadHandle for callers without an event loop: the loop reads ahead, the caller iterates."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator

from bookie_server.wire.record import Run
from bookkeeper_metadata.foundation.closing import Closing
from bookkeeper_metadata.model import LedgerMetadata
from spark_bookkeeper.blocking.loop_thread import LoopThread
from spark_bookkeeper.blocking.turns import iterate
from spark_bookkeeper.ledger import read_handle as aio
from spark_bookkeeper.ledger.entry import Entry, entries_of


class ReadHandle(Closing):
    """Reads one ledger, up to its LAC unless told otherwise. Iterations hold nothing once they end."""

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
        return self._entries(self._handle.read_runs(first_entry, last_entry))

    def read_unconfirmed(self, first_entry: int, last_entry: int) -> Iterator[Entry]:
        """Entries ``first_entry..last_entry``, in order, whether they are confirmed or not.

        An entry beyond the LAC may be read now and be gone after a recovery.

        Raises:
            NoSuchEntryError: all of an entry's write set swears that it is not there, or the ledger
                is closed before it; what precedes it was read.
            DigestMismatchError, EntryUnreadableError: no replica returned an entry; it may exist.
        """
        return iterate(self._thread, self._handle.read_unconfirmed(first_entry, last_entry))

    def tail(self, first_entry: int, *, timeout: float | None = None) -> Iterator[Entry]:
        """Entries from ``first_entry`` on, in order, as they are confirmed; ends with the ledger, or
        when nothing new came for ``timeout`` seconds.

        Raises:
            NoSuchLedgerError: the ledger was deleted.
            DigestMismatchError, EntryUnreadableError: no replica returned a confirmed entry, for
                seconds; another tail may go on at that entry.
        """
        return self._entries(self._handle.tail_runs(first_entry, timeout=timeout))

    def close(self) -> None:
        """Nothing is held: the connections are the client's. For symmetry with writers."""

    def _entries(self, runs: AsyncGenerator[Run, None]) -> Iterator[Entry]:
        digest_size = self._handle.digest_size
        for run in iterate(self._thread, runs):
            yield from entries_of(run, digest_size)
