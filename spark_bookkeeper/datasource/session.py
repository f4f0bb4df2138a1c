"""Session: a Spark process's way to one cluster - the shared client, and the log layer over it.

Clients are shared per process, cluster and settings, because Spark's Python workers serve many
tasks; a forked worker makes its own. Holds no state that a task depends on.

Callers use what is behind a session directly: ``client`` from their own thread, the log layer's and
``ledgers``' coroutines through :meth:`Session.run`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import aclosing
from dataclasses import replace
from random import Random
from typing import Any, TypeVar

from bookkeeper_metadata.errors import MetadataCorruptError
from bookkeeper_metadata.model import LedgerMetadata
from spark_bookkeeper.bookkeeper import BookKeeper, shared
from spark_bookkeeper.datasource.options.client import client_settings
from spark_bookkeeper.datasource.options.model import TargetOptions, WriteOptions
from spark_bookkeeper.datasource.schema import LogSchema, parse_log_schema
from spark_bookkeeper.ledger.client import LedgerClient
from spark_bookkeeper.log.layer import LogLayer, clock_ms
from spark_bookkeeper.log.nodes.reads import LogNodes
from spark_bookkeeper.log.reading.view import LogView
from spark_bookkeeper.log.settings import RetentionSettings

SCHEMA_KEY = "sparkSchema"
"""Custom metadata of a ledger Spark wrote: ``<log id>/<schema id>``."""
PAYLOAD_KEY = "sparkPayload"
"""Custom metadata: the payload format; ledgers without it are not ours to decode."""

QUERY_ID_KEY, BATCH_ID_KEY = "sparkQueryId", "sparkBatchId"
"""Custom metadata of a ledger a streaming query wrote: its id and the number of the micro-batch."""

T = TypeVar("T")


class Session(LogLayer):
    """The log layer over one client; cheap to make, never kept."""

    def __init__(
        self,
        client: BookKeeper,
        *,
        clock_ms: Callable[[], int] = clock_ms,
        random: Random | None = None,
        retention: RetentionSettings | None = None,
    ) -> None:
        ledgers = client.ledger_client
        super().__init__(
            ledgers.cluster.store,
            ledgers.cluster.root,
            fence=ledgers.fence_ledger,
            # The client's delete_ledger refuses what belongs to a log, and these all do.
            delete_ledger=ledgers.dispose_of_ledger,
            clock_ms=clock_ms,
            random=random,
            retention=retention,
        )
        self.client = client
        self.ledgers = ledgers

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the client's event loop to its end."""
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
            # Deleted with its log, or not yet known to the metadata server this session asks.
            await nodes.sync()
            # Raises where it is the log that is gone.
            await nodes.head()
            stored = await nodes.schema(schema_id)
        if stored is None:
            raise MetadataCorruptError(path, "the schema is gone")
        try:
            return parse_log_schema(stored)
        except ValueError as error:
            raise MetadataCorruptError(path, str(error)) from error

    async def _ledger_metadata(self, ledger_id: int) -> LedgerMetadata:
        # By the connected client, which has read the cluster's layout already.
        return await self.ledgers.ledger_metadata(ledger_id)

    def log_view(self, log_id: int, log: str, password: bytes) -> LogView:
        """One log with what is confirmed of its open ledger, to plan reads of."""
        return self.view(log_id, log, open_ledgers=_OpenLedgers(self.ledgers, password))


class _OpenLedgers:
    """Ledgers of one password, as the log layer asks for them."""

    def __init__(self, ledgers: LedgerClient, password: bytes) -> None:
        self._ledgers = ledgers
        self._password = password

    async def read_last_confirmed(self, ledger_id: int) -> int:
        # Without recovery, which would fence the writer who is at work.
        ledger = await self._ledgers.open_ledger(ledger_id, password=self._password)
        return ledger.last_add_confirmed

    async def length(self, ledger_id: int, last_entry: int) -> int:
        ledger = await self._ledgers.open_ledger(ledger_id, password=self._password)
        # Each entry carries the ledger's length up to and with itself.
        # Unconfirmed, because the bookies asked now may know of less than those the plan relied on.
        async with aclosing(ledger.read_unconfirmed(last_entry, last_entry)) as entries:
            return (await anext(entries)).length


def open_session(options: TargetOptions) -> Session:
    """A session with the cluster the options name, over this process's client.

    Options of a write name its retention too.

    Raises:
        MetadataUnavailableError, ClusterNotInitializedError: no cluster answers there.
    """
    settings, retention = client_settings(options.client_settings), None
    if isinstance(options, WriteOptions):
        retention = RetentionSettings(
            deleted_ledger_retention_ms=options.deleted_ledger_retention_ms,
            job_timeout_ms=options.job_timeout_ms,
        )
        own = {
            name: getattr(options, name) for name in ("min_write_quorum", "bookie_wait_timeout_ms")
        }
        settings = replace(
            settings, **{name: value for name, value in own.items() if value is not None}
        )
    return Session(shared(options.metadata_service_uri, settings), retention=retention)
