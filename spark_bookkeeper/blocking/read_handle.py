"""ReadHandle for callers without an event loop: the loop reads ahead, the caller iterates."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator

from bookie_server.wire.record import Run
from bookkeeper_metadata.foundation.closing import Closing
from bookkeeper_metadata.model import LedgerMetadata
from spark_bookkeeper.blocking.face import Face, blocking
from spark_bookkeeper.blocking.iteration import iterate
from spark_bookkeeper.blocking.loop_thread import LoopThread
from spark_bookkeeper.ledger import read_handle as aio
from spark_bookkeeper.ledger.entry import Entry, entries_of


class ReadHandle(Face[aio.ReadHandle], Closing):
    """Reads one ledger up to its LAC; safe to share between threads.

    Iterations hold nothing once they end.
    """

    def __init__(self, thread: LoopThread, handle: aio.ReadHandle) -> None:
        super().__init__(thread, handle)
        self.ledger_id = handle.ledger_id

    read_last_add_confirmed = blocking(aio.ReadHandle.read_last_add_confirmed)

    @property
    def metadata(self) -> LedgerMetadata:
        return self._aio.metadata

    @property
    def is_closed(self) -> bool:
        return self._aio.is_closed

    @property
    def length(self) -> int:
        return self._aio.length

    @property
    def last_add_confirmed(self) -> int:
        return self._aio.last_add_confirmed

    def read(self, first_entry: int, last_entry: int) -> Iterator[Entry]:
        return self._entries(self._aio.read_runs(first_entry, last_entry))

    def read_unconfirmed(self, first_entry: int, last_entry: int) -> Iterator[Entry]:
        return iterate(self._thread, self._aio.read_unconfirmed(first_entry, last_entry))

    def tail(self, first_entry: int, *, timeout: float | None = None) -> Iterator[Entry]:
        return self._entries(self._aio.tail_runs(first_entry, timeout=timeout))

    def close(self) -> None:
        pass

    def _entries(self, runs: AsyncGenerator[Run, None]) -> Iterator[Entry]:
        digest_size = self._aio.digest_size
        for run in iterate(self._thread, runs):
            yield from entries_of(run, digest_size)
