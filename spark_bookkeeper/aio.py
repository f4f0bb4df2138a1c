"""The public API as coroutines: the names of :mod:`spark_bookkeeper`, without threads.

Everything belongs to the event loop it was made on.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Coroutine
from functools import partial, wraps
from random import SystemRandom
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from bookie_server.client.connecting import connect_to
from bookkeeper_metadata.cluster import instance_id, read_layout
from bookkeeper_metadata.environment import METADATA_URI_VARIABLE, read_metadata_uri
from bookkeeper_metadata.foundation.closing import AsyncClosing
from bookkeeper_metadata.foundation.errors import BookKeeperError, ClientClosedError
from bookkeeper_metadata.foundation.tls.contexts import tls_of
from bookkeeper_metadata.store.connect import connect
from bookkeeper_metadata.store.interface import MetadataStore
from spark_bookkeeper.environment import client_settings_from_environment
from spark_bookkeeper.ledger.client import BookieStatus, LedgerClient
from spark_bookkeeper.ledger.context import LedgerContext
from spark_bookkeeper.ledger.entry import Entry
from spark_bookkeeper.ledger.measures import ClientMeasures
from spark_bookkeeper.ledger.read_handle import ReadHandle
from spark_bookkeeper.ledger.write_handle import WriteHandle
from spark_bookkeeper.log.format.model import KEEP_ALL, LogSettings, Retention
from spark_bookkeeper.log.format.position import Position
from spark_bookkeeper.log.format.raw import settings_and_schema
from spark_bookkeeper.log.handle import Log
from spark_bookkeeper.log.layer import LogLayer
from spark_bookkeeper.log.ledgers import ClusterLedgers
from spark_bookkeeper.log.reading.reader import LogReader
from spark_bookkeeper.log.settings import LogWriterSettings
from spark_bookkeeper.log.writing.writer import LogWriter
from spark_bookkeeper.settings import ClientSettings

P = ParamSpec("P")
T = TypeVar("T")


def metadata_uri(given: str | None) -> str:
    """The URI to use: the one given, else the environment's.

    Raises:
        ValueError: neither is set; names both ways to set it.
    """
    uri = given or read_metadata_uri(os.environ)
    if not uri:
        raise ValueError(
            "no cluster named: pass a metadata service URI such as "
            f"zk+hierarchical://127.0.0.1:2181/ledgers, or set {METADATA_URI_VARIABLE}"
        )
    return uri


def _connect_first(
    method: Callable[Concatenate[LedgerClient, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[BookKeeper, P], Coroutine[Any, Any, T]]:
    """Make a method that connects if need be, then calls ``method`` of the ledger client."""

    @wraps(method)
    async def call(self: BookKeeper, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await method(await self.connect(), *args, **kwargs)

    return call


class BookKeeper(AsyncClosing):
    """A client of one cluster; connects when entered or first used."""

    def __init__(
        self,
        metadata_service_uri: str | None = None,
        *,
        settings: ClientSettings | None = None,
    ) -> None:
        self.metadata_service_uri = metadata_uri(metadata_service_uri)
        self.settings = settings or client_settings_from_environment(os.environ)
        self.measures = ClientMeasures()
        """What it counts; see :mod:`spark_bookkeeper.metrics`."""
        self._ledgers: LedgerClient | None = None
        self._store: MetadataStore | None = None
        self._connecting: asyncio.Task[LedgerClient] | None = None
        self._is_closed = False

    async def connect(self) -> LedgerClient:
        """The connected ledger client; connects on the first call.

        Raises:
            TlsFilesError, CredentialsFileError: a file that the settings name cannot be used here.
            MetadataUnavailableError: no metadata server answered in time.
            MetadataAccessError: one did, and refuses this user.
            ClusterNotInitializedError: there is no cluster at the URI's path.
            ClientClosedError: this object was closed.
        """
        if self._is_closed:
            raise ClientClosedError("BookKeeper")
        if self._connecting is None:
            self._connecting = asyncio.create_task(self._connect(), name="bookkeeper-connect")
        try:
            # Concurrent first uses share one connection attempt.
            return await asyncio.shield(self._connecting)
        except BookKeeperError:
            self._connecting = None  # the next use connects again
            raise

    async def _connect(self) -> LedgerClient:
        # First: files that are missing are told by name, and not by a bookie that seems to be away.
        tls_of(self.settings.connection.tls_files)
        timeout_ms = self.settings.metadata_timeout_ms
        store, root = await connect(
            self.metadata_service_uri,
            security=self.settings,
            session_timeout_ms=timeout_ms,
            connect_timeout_ms=timeout_ms,
        )
        try:
            # At a path without a cluster nothing is registered, and there is no ledger and no log:
            # a wrong path would look like an empty cluster, and a first log would be made there.
            layout = await read_layout(store, root)
            cluster_id = await instance_id(store, root) or ""
        except BaseException:
            await store.close()
            raise
        self._store = store
        cluster = LedgerContext(
            store,
            root,
            layout=layout,
            settings=self.settings,
            random=SystemRandom(),
            measures=self.measures,
            make_client=partial(
                connect_to, cluster_id=cluster_id, bookie_protocol=self.settings.bookie_protocol
            ),
        )
        self._ledgers = LedgerClient(cluster)
        return self._ledgers

    create_ledger = _connect_first(LedgerClient.create_ledger)
    open_ledger = _connect_first(LedgerClient.open_ledger)
    delete_ledger = _connect_first(LedgerClient.delete_ledger)
    ledger_metadata = _connect_first(LedgerClient.ledger_metadata)
    bookies = _connect_first(LedgerClient.bookies)

    async def list_ledgers(self) -> AsyncGenerator[int, None]:
        """Ids of all ledgers, ascending."""
        async for ledger_id in (await self.connect()).list_ledgers():
            yield ledger_id

    async def create_log(
        self,
        name: str,
        *,
        settings: LogSettings | None = None,
        schema: bytes = b"",
        retention: Retention = KEEP_ALL,
    ) -> Log:
        """Create an empty log; ``schema`` is stored for its writers and readers.

        Without either it is a log of plain values: one binary column ``value``, one entry a row.

        Raises:
            LogExistsError: there is one of that name.
            ValueError: the name cannot be a log's.
        """
        layer = await self._logs()
        made = settings_and_schema(settings, schema)
        log_id = await layer.catalog.create(name, *made, retention)
        return await self._log(layer, name, log_id)

    async def open_log(self, name: str) -> Log:
        """Raises NoSuchLogError."""
        layer = await self._logs()
        return await self._log(layer, name, (await layer.catalog.open(name)).log_id)

    async def list_logs(self) -> list[str]:
        """Names of all logs, sorted."""
        return await (await self._logs()).catalog.names()

    async def delete_log(self, name: str) -> None:
        """Delete a log with all its ledgers; interrupted, ``bookkeeper logs gc`` goes on with it.

        Raises:
            NoSuchLogError: there is none of that name.
        """
        await (await self._logs()).catalog.delete(name)

    async def _log(self, layer: LogLayer, name: str, log_id: int) -> Log:
        return Log(layer, ClusterLedgers(await self.connect()), name, log_id)

    async def _logs(self) -> LogLayer:
        return LogLayer.over(await self.connect())

    async def close(self) -> None:
        """Close all connections. Idempotent; open handles stop working."""
        self._is_closed = True
        # What an attempt under way opens has to be closed as well.
        if self._connecting is not None:
            await asyncio.gather(self._connecting, return_exceptions=True)
        if self._ledgers is not None:
            await self._ledgers.cluster.close()
        if self._store is not None:
            await self._store.close()
        self._ledgers = self._store = None
        self._connecting = None

    async def __aenter__(self) -> Self:
        await self.connect()
        return self


__all__ = [
    "BookKeeper",
    "BookieStatus",
    "ClientSettings",
    "Entry",
    "Log",
    "LogReader",
    "LogSettings",
    "Retention",
    "LogWriter",
    "LogWriterSettings",
    "Position",
    "ReadHandle",
    "WriteHandle",
]
