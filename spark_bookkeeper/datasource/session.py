"""What a process of Spark's has to do with a cluster: one shared client, and the log layer over it.

Clients are shared per process, cluster and settings, because Spark's Python workers serve many
tasks; a forked worker makes its own. Holds no state that a task depends on.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import aclosing
from random import Random
from typing import Any, Protocol, TypeVar

from bookkeeper_metadata.errors import MetadataCorruptError
from bookkeeper_metadata.ledgers import ExtraOperations
from bookkeeper_metadata.model import LedgerMetadata
from bookkeeper_metadata.store.interface import MetadataStore
from spark_bookkeeper.bookkeeper import shared
from spark_bookkeeper.datasource.options.client import client_settings
from spark_bookkeeper.datasource.options.model import TargetOptions, WriteOptions
from spark_bookkeeper.datasource.schema import LogSchema, parse_log_schema
from spark_bookkeeper.ledger.entry import Entry
from spark_bookkeeper.log.format.model import LogSettings
from spark_bookkeeper.log.layer import LogLayer, clock_ms
from spark_bookkeeper.log.ledgers import replication_of
from spark_bookkeeper.log.nodes.reads import LogNodes
from spark_bookkeeper.log.reading.view import LogView
from spark_bookkeeper.log.settings import RetentionSettings
from spark_bookkeeper.settings import ClientSettings

SCHEMA_KEY = "sparkSchema"
"""Custom metadata of a ledger Spark wrote: ``<log id>/<schema id>``."""
PAYLOAD_KEY = "sparkPayload"
"""Custom metadata: the payload format; ledgers without it are not ours to decode."""

QUERY_ID_KEY, BATCH_ID_KEY = "sparkQueryId", "sparkBatchId"
"""Custom metadata of a ledger a streaming query wrote: its id and the number of the micro-batch."""

T = TypeVar("T")


class Outcome(Protocol):
    """An append under way."""

    def done(self) -> bool:
        """Whether the outcome is known."""

    def result(self, timeout: float | None = None) -> int:
        """The entry id; raises why there is none."""


class LedgerWriter(Protocol):
    """The single writer of one ledger."""

    @property
    def ledger_id(self) -> int:
        """Its ledger."""

    def append_async(self, payload: bytes) -> Outcome:
        """Append without waiting, in order."""

    def close(self) -> None:
        """Close the ledger behind the last entry."""


class LedgerReader(Protocol):
    """An open ledger."""

    @property
    def ledger_id(self) -> int:
        """Its id."""

    @property
    def last_add_confirmed(self) -> int:
        """Last entry that may be read."""

    @property
    def metadata(self) -> LedgerMetadata:
        """The ledger's metadata."""

    def read(self, first_entry: int, last_entry: int) -> Iterator[Entry]:
        """Entries in order, fetched ahead."""

    def read_unconfirmed(self, first_entry: int, last_entry: int) -> Iterator[Entry]:
        """Entries in order, also those this reader does not know to be confirmed."""


class Client(Protocol):
    """The cluster as the data source needs it; :class:`ClusterClient` in production."""

    @property
    def store(self) -> MetadataStore:
        """The metadata, to use from :meth:`run` only."""

    @property
    def root(self) -> str:
        """The ledgers' root in it."""

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run on the client's event loop and wait."""

    def start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run on the client's event loop, not waiting; nobody hears how it ends."""

    def create_ledger(
        self,
        settings: LogSettings,
        password: bytes,
        custom_metadata: Mapping[str, bytes],
        extra_operations: ExtraOperations,
    ) -> LedgerWriter:
        """Create a ledger together with ``accompany``'s operations."""

    def open_ledger(self, ledger_id: int, password: bytes) -> LedgerReader:
        """Open for reading, without fencing."""

    def ledger_metadata(self, ledger_id: int) -> LedgerMetadata:
        """What the metadata says of the ledger."""

    async def read_last_confirmed(self, ledger_id: int, password: bytes) -> int:
        """The ledger's last entry known to be confirmed."""

    async def length(self, ledger_id: int, last_entry: int, password: bytes) -> int:
        """Payload bytes of the ledger up to a confirmed entry."""

    async def require_bookies(self, ensemble_size: int) -> None:
        """Raises NotEnoughBookiesError when a ledger of that size could not be made now."""

    async def fence_ledger(self, ledger_id: int) -> None:
        """Recover the ledger, so its writer can add nothing more."""

    async def dispose_of_ledger(self, ledger_id: int) -> None:
        """Delete the ledger for the log that owns it."""


class ClusterClient:
    """The client of this process for one cluster."""

    def __init__(self, uri: str, settings: ClientSettings) -> None:
        self._shared = shared(uri, settings)
        self._ledgers = self._shared.ledgers
        self.store = self._ledgers.cluster.store
        self.root = self._ledgers.cluster.root

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run on the client's event loop and wait."""
        return self._shared.run(coroutine)

    def start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run on the client's event loop, not waiting; nobody hears how it ends."""
        self._shared.start(coroutine)

    def create_ledger(
        self,
        settings: LogSettings,
        password: bytes,
        custom_metadata: Mapping[str, bytes],
        extra_operations: ExtraOperations,
    ) -> LedgerWriter:
        """Create a ledger together with ``accompany``'s operations."""
        return self._shared.create_ledger(
            **replication_of(settings),
            password=password,
            custom_metadata=custom_metadata,
            extra_operations=extra_operations,
        )

    def open_ledger(self, ledger_id: int, password: bytes) -> LedgerReader:
        """Open for reading, without fencing."""
        return self._shared.open_ledger(ledger_id, password=password)

    def ledger_metadata(self, ledger_id: int) -> LedgerMetadata:
        """What the metadata says of the ledger."""
        return self._shared.ledger_metadata(ledger_id)

    async def read_last_confirmed(self, ledger_id: int, password: bytes) -> int:
        """The ledger's last entry known to be confirmed."""
        ledger = await self._ledgers.open_ledger(ledger_id, password=password)
        return ledger.last_add_confirmed

    async def length(self, ledger_id: int, last_entry: int, password: bytes) -> int:
        """Payload bytes of the ledger up to a confirmed entry, which carries them."""
        ledger = await self._ledgers.open_ledger(ledger_id, password=password)
        async with aclosing(ledger.read_unconfirmed(last_entry, last_entry)) as entries:
            return (await anext(entries)).length

    async def require_bookies(self, ensemble_size: int) -> None:
        """Raises NotEnoughBookiesError when a ledger of that size could not be made now."""
        await self._ledgers.cluster.choose_ensemble(ensemble_size)

    async def fence_ledger(self, ledger_id: int) -> None:
        """Recover the ledger, so its writer can add nothing more."""
        await self._ledgers.fence_ledger(ledger_id)

    async def dispose_of_ledger(self, ledger_id: int) -> None:
        """Delete the ledger for the log that owns it."""
        await self._ledgers.dispose_of_ledger(ledger_id)


class Session(LogLayer):
    """The log layer over one client; cheap to make, kept by nobody."""

    def __init__(
        self,
        client: Client,
        *,
        clock_ms: Callable[[], int] = clock_ms,
        random: Random | None = None,
        retention: RetentionSettings | None = None,
    ) -> None:
        super().__init__(
            client.store,
            client.root,
            fence=client.fence_ledger,
            delete_ledger=client.dispose_of_ledger,
            clock_ms=clock_ms,
            random=random,
            retention=retention,
        )
        self.client = client

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run on the client's event loop and wait."""
        return self.client.run(coroutine)

    async def schema(self, nodes: LogNodes, schema_id: int) -> LogSchema:
        """A log's schema by number.

        Raises:
            NoSuchLogError: the log is gone.
            MetadataCorruptError: the schema is not there, or is none.
        """
        path = nodes.tree.schema(schema_id)
        stored = await nodes.schema(schema_id)
        if stored is None:
            # Taken away with its log, or this session has not heard of it yet.
            await nodes.sync()
            await nodes.head()
            stored = await nodes.schema(schema_id)
        if stored is None:
            raise MetadataCorruptError(path, "the schema is gone")
        try:
            return parse_log_schema(stored)
        except ValueError as error:
            raise MetadataCorruptError(path, str(error)) from error

    def log_view(self, log_id: int, log: str, password: bytes) -> LogView:
        """One log with what is confirmed of its open ledger, to plan reads of."""
        return self.view(log_id, log, open_ledgers=_OpenLedgers(self.client, password))


class _OpenLedgers:
    """Ledgers of one password, as the log layer asks for them."""

    def __init__(self, client: Client, password: bytes) -> None:
        self._client = client
        self._password = password

    async def read_last_confirmed(self, ledger_id: int) -> int:
        return await self._client.read_last_confirmed(ledger_id, self._password)

    async def length(self, ledger_id: int, last_entry: int) -> int:
        return await self._client.length(ledger_id, last_entry, self._password)


def open_write_session(options: WriteOptions) -> Session:
    """As :func:`open_session`, with the retention the options name."""
    retention = RetentionSettings(
        deleted_ledger_retention_ms=options.deleted_ledger_retention_ms,
        job_timeout_ms=options.job_timeout_ms,
    )
    return open_session(options, retention)


def open_session(options: TargetOptions, retention: RetentionSettings | None = None) -> Session:
    """A session with the cluster the options name, over this process's client.

    Raises:
        MetadataUnavailableError, ClusterNotInitializedError: no cluster answers there.
    """
    settings = client_settings(options.client_settings)
    return Session(ClusterClient(options.metadata_service_uri, settings), retention=retention)
