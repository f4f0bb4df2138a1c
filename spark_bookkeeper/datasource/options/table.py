"""The table of options: how each is read, where it applies, and what the documentation says.

Names are Kafka's and Delta's where these have one. The dataclasses of
:mod:`spark_bookkeeper.datasource.options.model` hold the defaults, which the documentation shows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, unique
from typing import Any

from bookkeeper_metadata.environment import METADATA_URI_VARIABLE
from spark_bookkeeper.datasource.options import values
from spark_bookkeeper.log.format.model import COMPRESSIONS, PAYLOAD_FORMATS

CLIENT_PREFIX = "bookkeeper.client."


@unique
class Way(Enum):
    """What Spark can do with a data source, as the documentation's columns name it."""

    BATCH_READ = "batch read"
    STREAM_READ = "stream read"
    BATCH_WRITE = "batch write"
    STREAM_WRITE = "stream write"

    @property
    def is_read(self) -> bool:
        return self in READS


READS = (Way.BATCH_READ, Way.STREAM_READ)
WRITES = (Way.BATCH_WRITE, Way.STREAM_WRITE)
_ALL = (*READS, *WRITES)
_STREAM, _BATCH = (Way.STREAM_READ,), (Way.BATCH_READ,)


@dataclass(frozen=True, slots=True)
class Option:
    """One row of the table."""

    name: str
    attribute: str
    """Of the dataclass that is made of it."""
    parse: Callable[[str], Any]
    applies: tuple[Way, ...]
    help: str
    default: str = ""
    """What the documentation calls the default where the dataclass's own would not help a reader."""
    aliases: tuple[str, ...] = ()


OPTIONS: tuple[Option, ...] = (
    Option("metadataServiceUri", "metadata_service_uri", values.text, _ALL,
           "Cluster, as `zk+hierarchical://host:2181/ledgers`.", default=f"${METADATA_URI_VARIABLE}"),
    Option("log", "log", values.text, _ALL,
           "Name of the log; `load(\"name\")` and `save(\"name\")` do the same.", default="the path"),
    Option("ledger", "ledgers", values.ledger_ids, _BATCH, "Raw ledgers by id, `42` or `7,8,9`, instead of a log."),
    Option("password", "password", values.any_text, _ALL, "Password of the ledgers.", default="empty"),
    Option("passwordFile", "password_file", values.text, _ALL,
           "File with the password (its first line), on driver and executors."),
    Option("startingOffsets", "starting", values.parse_position, READS,
           "First row: `earliest`, `latest` or `{\"log\": id, \"row\": n}`; inclusive. A stream asks once, when it is new."),
    Option("startingTimestamp", "starting_timestamp_ms", values.parse_timestamp_ms, READS,
           "First row committed at this time or later: milliseconds or ISO 8601."),
    Option("startingTimestampStrategy", "is_latest_without_match",
           lambda value: values.one_of("error", "latest")(value) == "latest", READS,
           "When nothing was committed since `startingTimestamp`: `error`, or begin at the end with `latest`.", default="error"),
    Option("endingOffsets", "ending", values.parse_position, _BATCH,
           "End of the read: `latest`, `earliest` or JSON; exclusive."),
    Option("endingTimestamp", "ending_timestamp_ms", values.parse_timestamp_ms, _BATCH, "Rows committed before this time."),
    Option("maxRowsPerTrigger", "trigger_rows_max", values.count, _STREAM,
           "Rows of a micro-batch, exactly.", aliases=("maxOffsetsPerTrigger",)),
    Option("maxBytesPerTrigger", "trigger_bytes_max", values.parse_size_bytes, _STREAM,
           "Stored bytes of a micro-batch, roughly; at least one entry."),
    Option("minRowsPerTrigger", "trigger_rows_min", values.count, _STREAM,
           "Rows to wait for before a micro-batch.", aliases=("minOffsetsPerTrigger",)),
    Option("maxTriggerDelay", "trigger_delay_max_ms", values.parse_duration_ms, _STREAM,
           "Longest wait for `minRowsPerTrigger`."),
    Option("minPartitions", "partitions_min", values.count, READS,
           "At least this many partitions, when there are enough entries.", default="none"),
    Option("maxBytesPerPartition", "partition_bytes_max", values.parse_size_bytes, READS,
           "Stored bytes of a partition; larger ranges are split, small ones packed."),
    Option("maxRowsPerPartition", "partition_rows_max", values.count, READS,
           "Rows of a partition, kept up to one entry.", aliases=("maxRecordsPerPartition",)),
    Option("failOnDataLoss", "fails_on_data_loss", values.boolean, READS,
           "Fail when rows asked for were trimmed; `false` starts at the first row there is."),
    Option("ignoreOverwrites", "ignores_overwrites", values.boolean, _STREAM,
           "Go on with the new rows when the log was overwritten; `false` fails with `BK_LOG_OVERWRITTEN`."),
    Option("consumer", "consumer", values.text, _STREAM, "Names a cursor in the log that follows this query, for retention."),
    Option("consumerTimeout", "consumer_timeout_ms", values.parse_duration_ms, _STREAM,
           "Age at which a cursor that does not move no longer counts."),
    Option("columns", "columns", values.column_names, READS, "Columns to decode, in this order.", default="all"),
    Option("includeMetadata", "includes_metadata", values.boolean, READS,
           "Adds `_ledger`, `_entry`, `_position`, `_batch_id`, `_query_id`, `_timestamp`."),
    Option("ensembleSize", "ensemble_size", values.count, WRITES, "Bookies a ledger is spread over."),
    Option("writeQuorum", "write_quorum", values.count, WRITES, "Replicas of an entry."),
    Option("ackQuorum", "ack_quorum", values.count, WRITES, "Replicas on disk before a write counts."),
    Option("minWriteQuorum", "min_write_quorum", values.count, WRITES,
           "Replicas that must be possible at once while bookies are away; the others are missing until they are repaired.",
           default="the ack quorum"),
    Option("bookieWaitTimeout", "bookie_wait_timeout_ms", values.parse_duration_ms, WRITES,
           "How long a task waits for bookies that are away, when too few are left.", default="60s"),
    Option("digestType", "digest_type", values.one_of("CRC32C", "CRC32", "HMAC", "DUMMY"), WRITES, "Checksum of the entries."),
    Option("payloadFormat", "payload_format", values.one_of(*PAYLOAD_FORMATS), WRITES,
           "`arrow`: record batches. `avro`: rows any Avro library reads. `raw`: one binary or string column, one row one entry."),
    Option("compression", "compression", values.one_of(*COMPRESSIONS), WRITES, "Of Arrow payloads."),
    Option("entryBytes", "entry_bytes", values.parse_size_bytes, WRITES, "Encoded size entries are cut at."),
    Option("maxInFlightBytes", "in_flight_bytes_max", values.parse_size_bytes, WRITES,
           "Encoded bytes a task keeps unacknowledged; bounds its memory."),
    Option("statsColumns", "stats_columns", values.whole, WRITES, "First columns whose min and max are kept, 0 for none."),
    Option("createLog", "creates_log", values.boolean, WRITES, "Create the log at its first write."),
    Option("mergeSchema", "merges_schema", values.boolean, WRITES, "Add columns the log does not have yet."),
    Option("takeOver", "takes_over", values.boolean, WRITES,
           "Fence a writer outside Spark that holds the log open, and go on behind its rows."),
    Option("deletedLedgerRetention", "deleted_ledger_retention_ms", values.parse_duration_ms, WRITES,
           "How long overwritten ledgers stay for running readers."),
    Option("jobTimeout", "job_timeout_ms", values.parse_duration_ms, WRITES,
           "Age at which an unfinished write is cleaned up."),
    Option("retentionTime", "retention_time_ms", values.positive_duration_ms, WRITES,
           "Of a log this write creates: age at which committed rows go; later `bookkeeper logs set`.", default="none"),
    Option("retentionSize", "retention_size_bytes", values.parse_size_bytes, WRITES,
           "Of a log this write creates: newest payload bytes that stay at least; what is older goes.", default="none"),
    Option("txnAppId", "txn_app_id", values.text, (Way.BATCH_WRITE,),
           "Names a sequence of writes that are made at most once each."),
    Option("txnVersion", "txn_version", values.whole, (Way.BATCH_WRITE,),
           "Number in that sequence; not above the last one: skipped."),
)  # fmt: skip
