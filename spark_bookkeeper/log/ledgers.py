"""What a log's writers and readers need of ledgers, and where they get it in production.

The interfaces are the ledger layer's own handles, narrowed: tests put other ledgers behind them.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Protocol, TypedDict

from bookkeeper_metadata.foundation.errors import BookKeeperError
from bookkeeper_metadata.ledgers import ExtraOperations
from spark_bookkeeper.ledger.client import LedgerClient
from spark_bookkeeper.ledger.entry import Entry, entries_of
from spark_bookkeeper.ledger.pending_adds import AppendCallback
from spark_bookkeeper.ledger.read_handle import ReadHandle
from spark_bookkeeper.log.format.model import LogSettings


class Replication(TypedDict):
    """How one ledger is replicated, as ``create_ledger`` takes it."""

    ensemble_size: int
    write_quorum: int
    ack_quorum: int
    digest_type: str


def replication_of(settings: LogSettings) -> Replication:
    """How a log wants its ledgers."""
    return {
        "ensemble_size": settings.ensemble_size,
        "write_quorum": settings.write_quorum,
        "ack_quorum": settings.ack_quorum,
        "digest_type": settings.digest_type.name,
    }


class LedgerAppender(Protocol):
    """The single writer of one ledger."""

    ledger_id: int
    payload_size_max: int
    on_release: Callable[[int], None] | None

    def push(self, payloads: Sequence[bytes], complete: AppendCallback) -> None:
        """Append; acknowledgements come in entry order."""

    async def close(self) -> None:
        """Wait for what is in flight and close the ledger behind it."""

    def abandon(self, error: BookKeeperError) -> None:
        """Fail what is not acknowledged and leave the ledger open."""


class LedgerEntries(Protocol):
    """One ledger, open for reading."""

    @property
    def last_add_confirmed(self) -> int:
        """Last entry that may be read; -1: none is known to be confirmed, though some may be."""

    def batches(self, first_entry: int, last_entry: int) -> AsyncGenerator[list[Entry], None]:
        """Entries in order, all of them or an error, as they arrive."""

    def tail(
        self, first_entry: int, *, timeout_s: float | None
    ) -> AsyncGenerator[list[Entry], None]:
        """Entries as they are confirmed; ends with the ledger, or when none came for so long."""


class Ledgers(Protocol):
    """The ledgers of one cluster."""

    async def create(
        self,
        settings: LogSettings,
        *,
        password: bytes,
        custom_metadata: Mapping[str, bytes],
        extra_operations: ExtraOperations,
    ) -> LedgerAppender:
        """Create a ledger, with ``extra_operations`` in the same step, and become its writer."""

    async def open(self, ledger_id: int, password: bytes) -> LedgerEntries:
        """Open for reading, without fencing."""


class ClusterLedgers:
    """The ledgers a client reaches."""

    def __init__(self, client: LedgerClient) -> None:
        self._client = client

    async def create(
        self,
        settings: LogSettings,
        *,
        password: bytes,
        custom_metadata: Mapping[str, bytes],
        extra_operations: ExtraOperations,
    ) -> LedgerAppender:
        """See :meth:`spark_bookkeeper.ledger.client.LedgerClient.create_ledger`."""
        return await self._client.create_ledger(
            **replication_of(settings),
            password=password,
            custom_metadata=custom_metadata,
            extra_operations=extra_operations,
        )

    async def open(self, ledger_id: int, password: bytes) -> LedgerEntries:
        """See :meth:`spark_bookkeeper.ledger.client.LedgerClient.open_ledger`."""
        return _HandleEntries(await self._client.open_ledger(ledger_id, password=password))


class _HandleEntries:
    """A read handle whose entries come a run at a time."""

    def __init__(self, handle: ReadHandle) -> None:
        self._handle = handle

    @property
    def last_add_confirmed(self) -> int:
        return self._handle.last_add_confirmed

    async def batches(self, first_entry: int, last_entry: int) -> AsyncGenerator[list[Entry], None]:
        # Closed with this generator, for the handle has tasks that read ahead.
        async with aclosing(self._handle.read_runs(first_entry, last_entry)) as runs:
            async for run in runs:
                yield list(entries_of(run, self._handle.digest_size))

    async def tail(
        self, first_entry: int, *, timeout_s: float | None
    ) -> AsyncGenerator[list[Entry], None]:
        async with aclosing(self._handle.tail_runs(first_entry, timeout=timeout_s)) as runs:
            async for run in runs:
                yield list(entries_of(run, self._handle.digest_size))
