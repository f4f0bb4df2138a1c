"""What a read or write was asked for, as values: one class for each of Spark's four ways.

Values only, picklable; what cannot be served although each value alone is fine is listed
by ``defects``. Nothing here touches files or clusters, but for the password's file, which the process
that needs it reads.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from bookkeeper_metadata.foundation.secret_file import read_secret
from spark_bookkeeper.datasource.errors import OptionsError
from spark_bookkeeper.datasource.options.values import EARLIEST, LATEST, Position
from spark_bookkeeper.log.format.epoch import APP_ID_BYTES_MAX
from spark_bookkeeper.log.settings import RetentionSettings

ENTRY_BYTES_MAX = 4 * 1024 * 1024
"""Largest ``entryBytes``: leaves room below BookKeeper's 5 MiB for what the estimate misses."""
_RETENTION = RetentionSettings()


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetOptions:
    """Which cluster, which log or ledgers, and how to get in."""

    metadata_service_uri: str
    log: str | None = None
    ledgers: tuple[int, ...] = ()
    """Raw ledgers to read instead of a log."""
    password: str = field(default="", repr=False)
    password_file: str | None = None
    client_settings: tuple[tuple[str, str], ...] = ()
    """``bookkeeper.client.<name>`` options as given: lower-cased names and values."""

    def defects(self, given: frozenset[str]) -> list[str]:
        """What cannot be served although each value alone is fine; ``given`` are attributes."""
        return []

    def read_password(self) -> bytes:
        """The ledgers' password, read from the file by the process that needs it.

        Raises:
            OptionsError: ``passwordFile`` cannot be read here.
        """
        if self.password_file is None:
            # As the command line makes text of a password that is none.
            return self.password.encode(errors="surrogateescape")
        try:
            return read_secret(self.password_file)
        except OSError as error:
            raise OptionsError(
                (f"option passwordFile: {error.strerror}; file={self.password_file}",)
            ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions(TargetOptions):
    """What a batch read was asked for, and what every read is."""

    starting: Position = EARLIEST
    starting_timestamp_ms: int | None = None
    """First row committed at this time or later; ``None``: ``starting`` says."""
    is_latest_without_match: bool = False
    """A starting time after everything committed means the end, not an error."""
    ending: Position = LATEST
    ending_timestamp_ms: int | None = None
    """Rows committed before this time; ``None``: ``ending`` says."""
    partitions_min: int = 1
    partition_bytes_max: int = 128 << 20
    """Stored bytes; more means fewer, longer tasks (Spark's file sources use 128 MiB)."""
    partition_rows_max: int | None = None
    fails_on_data_loss: bool = True
    columns: tuple[str, ...] = ()
    """Empty: all."""
    includes_metadata: bool = False

    def defects(self, given: frozenset[str]) -> list[str]:
        """As :meth:`TargetOptions.defects`."""
        found = []
        for way in ("starting", "ending"):
            if {way, f"{way}_timestamp_ms"} <= given:
                found.append(f"options {way}Offsets and {way}Timestamp exclude each other")
        places = {"starting", "ending", "starting_timestamp_ms", "ending_timestamp_ms"}
        if self.ledgers and places & given:
            found.append("offsets and timestamps are for logs, not for ledger=")
        if "is_latest_without_match" in given and self.starting_timestamp_ms is None:
            found.append("option startingTimestampStrategy needs startingTimestamp")
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamReadOptions(ReadOptions):
    """What a streaming read was asked for."""

    starting: Position = LATEST
    trigger_rows_max: int | None = None
    """Rows of a micro-batch, exactly."""
    trigger_bytes_max: int | None = None
    """Stored bytes of a micro-batch, roughly: at least one entry."""
    trigger_rows_min: int | None = None
    """Rows to wait for, at most ``trigger_delay_max_ms``."""
    trigger_delay_max_ms: int = 15 * 60_000
    """15 min, Kafka's ``maxTriggerDelay``."""
    ignores_overwrites: bool = False
    consumer: str | None = None
    """Name of a cursor by which retention knows how far this query has read."""
    consumer_timeout_ms: int = 7 * 86_400_000

    def defects(self, given: frozenset[str]) -> list[str]:
        """As :meth:`TargetOptions.defects`."""
        # Named: super() without arguments does not work in a dataclass with slots.
        found = ReadOptions.defects(self, given)
        if self.ledgers or self.log is None:
            found.append("a stream reads a log, not ledgers by id; read those as a batch")
        low, high = self.trigger_rows_min, self.trigger_rows_max
        if low is not None and high is not None and low > high:
            found.append(
                f"option minRowsPerTrigger must not be above maxRowsPerTrigger; {low} > {high}"
            )
        if "trigger_delay_max_ms" in given and low is None:
            found.append("option maxTriggerDelay needs minRowsPerTrigger")
        if "consumer_timeout_ms" in given and self.consumer is None:
            found.append("option consumerTimeout needs consumer")
        if self.consumer_timeout_ms < 1:
            found.append("option consumerTimeout must be above 0: a cursor would never count")
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions(TargetOptions):
    """What a write was asked for, streaming or not; ``None`` means the log's own setting."""

    ensemble_size: int | None = None
    write_quorum: int | None = None
    ack_quorum: int | None = None
    min_write_quorum: int | None = None
    """As the client's setting of that name, like the next; ``None``: its default."""
    bookie_wait_timeout_ms: int | None = None
    digest_type: str | None = None
    payload_format: str | None = None
    compression: str | None = None
    entry_bytes: int | None = None
    """Encoded bytes; smaller entries prune better, larger ones cost less per row."""
    in_flight_bytes_max: int = 64 << 20
    stats_columns: int = 8
    creates_log: bool = True
    merges_schema: bool = False
    """Columns the log does not have are added to it by the commit."""
    takes_over: bool = False
    """A writer outside Spark is fenced and its ledger recorded first."""
    deleted_ledger_retention_ms: int = _RETENTION.deleted_ledger_retention_ms
    job_timeout_ms: int = _RETENTION.job_timeout_ms
    retention_time_ms: int | None = None
    """Of the log this write creates, like the next; one that is there keeps its own."""
    retention_size_bytes: int | None = None
    txn_app_id: str | None = None
    txn_version: int | None = None

    def defects(self, given: frozenset[str]) -> list[str]:
        """As :meth:`TargetOptions.defects`."""
        found = []
        if self.ledgers or self.log is None:
            found.append('a write needs a log: .option("log", "name") or .save("name")')
        if (self.txn_app_id is None) != (self.txn_version is None):
            found.append("txnAppId and txnVersion go together")
        if len((self.txn_app_id or "").encode(errors="replace")) > APP_ID_BYTES_MAX:
            found.append(f"option txnAppId: must not be longer than {APP_ID_BYTES_MAX} bytes")
        if self.job_timeout_ms < 1:
            found.append("option jobTimeout: must be longer than 0")
        if self.entry_bytes is not None and not 1024 <= self.entry_bytes <= ENTRY_BYTES_MAX:
            found.append(
                f"option entryBytes: must lie between 1k and 4m; value={self.entry_bytes} bytes"
            )
        sizes = {
            "ackQuorum": self.ack_quorum,
            "minWriteQuorum": self.min_write_quorum,
            "writeQuorum": self.write_quorum,
            "ensembleSize": self.ensemble_size,
        }
        # What is not given here is the log's: compared with that when the write is planned.
        given_sizes = [(name, size) for name, size in sizes.items() if size is not None]
        for (low, low_size), (high, high_size) in pairwise(given_sizes):
            if low_size > high_size:
                found.append(f"option {low} must not be above {high}; {low_size} > {high_size}")
        return found
