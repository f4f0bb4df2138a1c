"""BookKeeper: the client of one cluster for ordinary, synchronous Python.

Connects on first use, in the process that uses it: an object made before ``fork`` connects anew in
the child, while handles opened before belong to the parent alone.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

from bookkeeper_metadata.foundation.closing import Closing
from bookkeeper_metadata.foundation.errors import ClientClosedError
from spark_bookkeeper import aio
from spark_bookkeeper.blocking.connection import Connection
from spark_bookkeeper.blocking.face import Face, blocking
from spark_bookkeeper.blocking.iteration import iterate
from spark_bookkeeper.blocking.log import Log
from spark_bookkeeper.blocking.read_handle import ReadHandle
from spark_bookkeeper.blocking.write_handle import WriteHandle
from spark_bookkeeper.environment import client_settings_from_environment
from spark_bookkeeper.ledger.client import LedgerClient
from spark_bookkeeper.ledger.measures import ClientMeasures
from spark_bookkeeper.settings import ClientSettings

T = TypeVar("T")

_inherited: list[Connection] = []
"""Clients of parent processes, never freed: closing their connections in a forked child would wait for
threads that only the parent has."""


class BookKeeper(Face[aio.BookKeeper], Closing):
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
        self.settings = settings or client_settings_from_environment(os.environ)
        self.measures = ClientMeasures()
        """What it counts; see :mod:`spark_bookkeeper.metrics`."""
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._is_closed = False

    def _own_writer(self, handle: aio.WriteHandle) -> WriteHandle:
        at = self._connect()
        writer = WriteHandle(at.thread, handle, self.settings.max_in_flight_bytes)
        at.writers.add(writer)
        return writer

    def _reader(self, handle: aio.ReadHandle) -> ReadHandle:
        return ReadHandle(self._connect().thread, handle)

    def _log(self, log: aio.Log) -> Log:
        at = self._connect()
        return Log(at.thread, log, at.writers.add)

    create_ledger = blocking(aio.BookKeeper.create_ledger, _own_writer)
    open_ledger = blocking(aio.BookKeeper.open_ledger, _reader)
    delete_ledger = blocking(aio.BookKeeper.delete_ledger)
    ledger_metadata = blocking(aio.BookKeeper.ledger_metadata)
    bookies = blocking(aio.BookKeeper.bookies)
    create_log = blocking(aio.BookKeeper.create_log, _log)
    open_log = blocking(aio.BookKeeper.open_log, _log)
    list_logs = blocking(aio.BookKeeper.list_logs)
    delete_log = blocking(aio.BookKeeper.delete_log)

    def list_ledgers(self) -> Iterator[int]:
        at = self._connect()
        yield from iterate(at.thread, at.client.list_ledgers())

    # -- for the layers above -------------------------------------------------------------------

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on this client's event loop; blocks until it is done."""
        return self._connect().thread.run(coroutine)

    def start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine on this client's event loop without waiting; its outcome is lost."""
        self._connect().thread.start(coroutine)

    @property
    def ledger_client(self) -> LedgerClient:
        """The connected ledger client, to use on this client's event loop."""
        return self._run(aio.BookKeeper.connect)

    def close(self) -> None:
        """Close all connections; appends not acknowledged yet fail. Idempotent."""
        with self._lock:
            connection, self._connection = self._connection, None
            self._is_closed = True
        if connection is not None:
            connection.close()

    def _run(self, act: Callable[[aio.BookKeeper], Coroutine[Any, Any, T]]) -> T:
        at = self._connect()
        return at.thread.run(act(at.client))

    def _connect(self) -> Connection:
        with self._lock:
            if self._is_closed:
                raise ClientClosedError("BookKeeper")
            if self._connection is None or self._connection.thread.is_foreign:
                # After a fork the parent's loop thread does not exist here: make our own.
                if self._connection is not None:
                    _inherited.append(self._connection)
                self._connection = Connection(
                    self.metadata_service_uri, self.settings, self.measures
                )
            return self._connection


_shared: dict[tuple[int, str, ClientSettings], BookKeeper] = {}
_shared_lock = threading.Lock()


def shared(metadata_service_uri: str, settings: ClientSettings | None = None) -> BookKeeper:
    """The one client of this process for a cluster and settings; never closed by its users.

    For processes that do many short pieces of work, such as Spark's Python workers.
    """
    key = (
        os.getpid(),
        metadata_service_uri,
        settings or client_settings_from_environment(os.environ),
    )
    with _shared_lock:
        client = _shared.get(key)
        if client is None:
            client = _shared[key] = BookKeeper(metadata_service_uri, settings=settings)
        return client
