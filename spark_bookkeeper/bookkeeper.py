"""BookKeeper: the client of one cluster for ordinary, synchronous Python.

Connects on first use, in the process that uses it: an object made before ``fork`` connects anew in
the child, while handles opened before belong to the parent alone.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Coroutine, Iterator, Mapping
from typing import Any, TypeVar

from bookkeeper_metadata.foundation.closing import Closing
from bookkeeper_metadata.foundation.errors import ClientClosedError
from bookkeeper_metadata.ledgers import ExtraOperations
from bookkeeper_metadata.model import LedgerMetadata
from spark_bookkeeper import aio
from spark_bookkeeper.blocking.connection import Connection
from spark_bookkeeper.blocking.log import Log
from spark_bookkeeper.blocking.read_handle import ReadHandle
from spark_bookkeeper.blocking.write_handle import WriteHandle
from spark_bookkeeper.ledger.client import BookieStatus, LedgerClient
from spark_bookkeeper.log.format.model import LogSettings
from spark_bookkeeper.settings import ClientSettings

T = TypeVar("T")

_inherited: list[Connection] = []
"""Parents' clients: to free their connections in a forked child would wait for threads it has not."""


class BookKeeper(Closing):
    """Create, open, list and delete ledgers; safe to share between threads."""

    def __init__(
        self,
        metadata_service_uri: str | None = None,
        *,
        settings: ClientSettings | None = None,
    ) -> None:
        """Name the cluster, here or in ``BOOKKEEPER_METADATA_URI``; nothing is connected yet.

        Raises:
            ValueError: no cluster is named.
        """
        self.metadata_service_uri = aio.metadata_uri(metadata_service_uri)
        self.settings = settings or ClientSettings()
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._is_closed = False

    def create_ledger(
        self,
        *,
        ensemble_size: int = 3,
        write_quorum: int = 3,
        ack_quorum: int = 2,
        digest_type: str = "CRC32C",
        password: bytes = b"",
        custom_metadata: Mapping[str, bytes] | None = None,
        ledger_id: int | None = None,
        extra_operations: ExtraOperations | None = None,
    ) -> WriteHandle:
        """Create a ledger and become its writer.

        Raises:
            ValueError: impossible quorums or digest type.
            NotEnoughBookiesError: fewer than ``ensemble_size`` bookies are writable.
            LedgerExistsError: ``ledger_id`` is taken.
        """
        at = self._connected()
        handle = at.thread.run(
            at.client.create_ledger(
                ensemble_size=ensemble_size,
                write_quorum=write_quorum,
                ack_quorum=ack_quorum,
                digest_type=digest_type,
                password=password,
                custom_metadata=custom_metadata,
                ledger_id=ledger_id,
                extra_operations=extra_operations,
            )
        )
        writer = WriteHandle(at.thread, handle, self.settings.max_in_flight_bytes)
        at.writers.add(writer)
        return writer

    def open_ledger(
        self, ledger_id: int, *, password: bytes = b"", recovery: bool = False
    ) -> ReadHandle:
        """Open for reading; ``recovery`` first takes an open ledger over from its writer.

        Raises:
            NoSuchLedgerError, UnauthorizedError: surely.
            LedgerRecoveryError, EntryUnreadableError: too few bookies answer.
        """
        at = self._connected()
        opened = at.thread.run(
            at.client.open_ledger(ledger_id, password=password, recovery=recovery)
        )
        return ReadHandle(at.thread, opened)

    def delete_ledger(self, ledger_id: int, *, force: bool = False) -> None:
        """Delete a ledger, recovering it first if it is open (``force`` skips that).

        Raises:
            NoSuchLedgerError: there was none.
            LedgerInUseError: it belongs to a log.
        """
        at = self._connected()
        at.thread.run(at.client.delete_ledger(ledger_id, force=force))

    def ledger_metadata(self, ledger_id: int) -> LedgerMetadata:
        """Raises NoSuchLedgerError, MetadataCorruptError."""
        at = self._connected()
        return at.thread.run(at.client.ledger_metadata(ledger_id))

    def list_ledgers(self) -> Iterator[int]:
        """Ids of all ledgers, ascending."""
        at = self._connected()
        ids = at.client.list_ledgers()

        async def next_id() -> int | None:
            return await anext(ids, None)

        while (ledger_id := at.thread.run(next_id())) is not None:
            yield ledger_id

    def bookies(self) -> list[BookieStatus]:
        """All registered bookies, by id."""
        at = self._connected()
        return at.thread.run(at.client.bookies())

    def create_log(
        self, name: str, *, settings: LogSettings | None = None, schema: bytes = b""
    ) -> Log:
        """Create an empty log; ``schema`` is kept for whoever writes and reads it.

        Without either it is a log of plain values: one binary column ``value``, one entry a row.

        Raises:
            LogExistsError: there is one of that name.
        """
        at = self._connected()
        created = at.thread.run(at.client.create_log(name, settings=settings, schema=schema))
        return Log(at.thread, created, at.writers.add)

    def open_log(self, name: str) -> Log:
        """Raises NoSuchLogError."""
        at = self._connected()
        return Log(at.thread, at.thread.run(at.client.open_log(name)), at.writers.add)

    def list_logs(self) -> list[str]:
        """Names of all logs, sorted."""
        at = self._connected()
        return at.thread.run(at.client.list_logs())

    def delete_log(self, name: str) -> None:
        """Delete a log with all its ledgers.

        Raises:
            NoSuchLogError: there is none of that name.
        """
        at = self._connected()
        at.thread.run(at.client.delete_log(name))

    # -- for the layers above -------------------------------------------------------------------

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on this client's event loop; blocks until it is done."""
        at = self._connected()
        return at.thread.run(coroutine)

    def start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine on this client's event loop; nobody waits for it or hears how it ends."""
        self._connected().thread.start(coroutine)

    @property
    def ledgers(self) -> LedgerClient:
        """The connected ledger client, to use on this client's event loop."""
        at = self._connected()
        return at.thread.run(at.client.connect())

    def close(self) -> None:
        """Close all connections; appends not acknowledged yet fail. Idempotent."""
        with self._lock:
            connection, self._connection = self._connection, None
            self._is_closed = True
        if connection is not None:
            connection.close()

    def _connected(self) -> Connection:
        with self._lock:
            if self._is_closed:
                raise ClientClosedError("BookKeeper")
            if self._connection is None or self._connection.thread.is_foreign:
                # After a fork the parent's loop thread does not exist here: make our own.
                if self._connection is not None:
                    _inherited.append(self._connection)
                self._connection = Connection(self.metadata_service_uri, self.settings)
            return self._connection


_shared: dict[tuple[int, str, ClientSettings], BookKeeper] = {}
_shared_lock = threading.Lock()


def shared(metadata_service_uri: str, settings: ClientSettings | None = None) -> BookKeeper:
    """The one client of this process for a cluster and settings; never closed by its users.

    For processes that do many short pieces of work, such as Spark's Python workers.
    """
    key = (os.getpid(), metadata_service_uri, settings or ClientSettings())
    with _shared_lock:
        client = _shared.get(key)
        if client is None:
            client = _shared[key] = BookKeeper(metadata_service_uri, settings=settings)
        return client
