"""Options: Spark's strings to frozen dataclasses, by one table that also makes the documentation.

Decides which keys are ours, which are Spark's, and what a value means. All defects are reported in
one error. An option of the other direction is accepted and not read, because a view is read and
written with the same options; a name that this version cannot serve is refused, never ignored.
Keys arrive lower-cased from Spark, so they are compared without case. Pure: the environment is an
argument, files and clusters are touched by nobody here.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from spark_bookkeeper.datasource.errors import OptionsError, OptionUnknownError
from spark_bookkeeper.datasource.option_values import (
    EARLIEST,
    LATEST,
    Position,
    any_text,
    boolean,
    column_names,
    count,
    ledger_ids,
    one_of,
    parse_duration_ms,
    parse_position,
    parse_size_bytes,
    text,
    whole,
)
from spark_bookkeeper.log.paths import check_log_name

METADATA_URI_VARIABLE = "BOOKKEEPER_METADATA_URI"
CLIENT_PREFIX = "bookkeeper.client."
ENTRY_BYTES_MAX = 4 * 1024 * 1024
"""Largest ``entryBytes``: leaves room below BookKeeper's 5 MiB for what the estimate misses."""

_SPARK_KEYS = frozenset(
    (
        "checkpointlocation", "queryname", "owner", "provider", "path", "paths", "name", "comment",
        "location", "external", "is_managed_location", "table_type", "outputmode", "numpartitions",
    )
)  # fmt: skip
_SPARK_PREFIXES = ("option.", "__", "spark.")

READ, WRITE = "read", "write"
T = TypeVar("T", "ReadOptions", "WriteOptions")


@dataclass(frozen=True, slots=True)
class Option:
    """One row of the table: how a value is read, where it applies, and what the docs say."""

    name: str
    attribute: str
    parse: Callable[[str], Any]
    applies: tuple[str, ...]
    default: str
    """As the documentation shows it; the dataclasses below hold the values."""
    help: str


_BOTH = (READ, WRITE)
OPTIONS: tuple[Option, ...] = (
    Option("metadataServiceUri", "metadata_service_uri", text, _BOTH, f"${METADATA_URI_VARIABLE}",
           "Cluster, as `zk+hierarchical://host:2181/ledgers`."),
    Option("log", "log", text, _BOTH, "the path", "Name of the log; `load(\"name\")` and `save(\"name\")` do the same."),
    Option("ledger", "ledgers", ledger_ids, (READ,), "none", "Raw ledgers by id, `42` or `7,8,9`, instead of a log."),
    Option("password", "password", any_text, _BOTH, "empty", "Password of the ledgers."),
    Option("passwordFile", "password_file", text, _BOTH, "none",
           "File with the password (its first line), on driver and executors."),
    Option("startingOffsets", "starting", parse_position, (READ,), "earliest",
           "First row: `earliest`, `latest` or `{\"log\": id, \"row\": n}`; inclusive."),
    Option("endingOffsets", "ending", parse_position, (READ,), "latest",
           "End of the read: `latest`, `earliest` or JSON; exclusive."),
    Option("minPartitions", "partitions_min", count, (READ,), "none", "At least this many partitions, when there are enough entries."),
    Option("maxBytesPerPartition", "partition_bytes_max", parse_size_bytes, (READ,), "128m",
           "Stored bytes of a partition; larger ranges are split, small ones packed."),
    Option("maxRowsPerPartition", "partition_rows_max", count, (READ,), "none", "Rows of a partition, kept up to one entry."),
    Option("failOnDataLoss", "fails_on_data_loss", boolean, (READ,), "true",
           "Fail when rows asked for were trimmed; `false` starts at the first row there is."),
    Option("columns", "columns", column_names, (READ,), "all", "Columns to decode, in this order."),
    Option("includeMetadata", "includes_metadata", boolean, (READ,), "false",
           "Adds `_ledger`, `_entry`, `_position`, `_timestamp`."),
    Option("ensembleSize", "ensemble_size", count, (WRITE,), "the log's, else 3", "Bookies a ledger is spread over."),
    Option("writeQuorum", "write_quorum", count, (WRITE,), "the log's, else 3", "Replicas of an entry."),
    Option("ackQuorum", "ack_quorum", count, (WRITE,), "the log's, else 2", "Replicas on disk before a write counts."),
    Option("digestType", "digest_type", one_of("CRC32C", "CRC32", "HMAC", "DUMMY"), (WRITE,), "the log's, else CRC32C",
           "Checksum of the entries."),
    Option("payloadFormat", "payload_format", one_of("arrow", "raw"), (WRITE,), "the log's, else arrow",
           "`arrow`: record batches. `raw`: one binary or string column, one row one entry."),
    Option("compression", "compression", one_of("zstd", "lz4", "none"), (WRITE,), "the log's, else zstd", "Of Arrow payloads."),
    Option("entryBytes", "entry_bytes", parse_size_bytes, (WRITE,), "the log's, else 1m", "Encoded size entries are cut at."),
    Option("maxInFlightBytes", "in_flight_bytes_max", parse_size_bytes, (WRITE,), "64m",
           "Encoded bytes a task keeps unacknowledged; bounds its memory."),
    Option("statsColumns", "stats_columns", whole, (WRITE,), "8", "First columns whose min and max are kept, 0 for none."),
    Option("createLog", "creates_log", boolean, (WRITE,), "true", "Create the log at its first write."),
    Option("deletedLedgerRetention", "deleted_ledger_retention_ms", parse_duration_ms, (WRITE,), "1h",
           "How long overwritten ledgers stay for running readers."),
    Option("jobTimeout", "job_timeout_ms", parse_duration_ms, (WRITE,), "7d", "Age at which an unfinished write is cleaned up."),
    Option("txnAppId", "txn_app_id", text, (WRITE,), "none", "Names a sequence of writes that are made at most once each."),
    Option("txnVersion", "txn_version", whole, (WRITE,), "none", "Number in that sequence; not above the last one: skipped."),
)  # fmt: skip

NOT_YET = frozenset(
    (
        "startingTimestamp", "endingTimestamp", "startingTimestampStrategy", "maxRowsPerTrigger",
        "maxOffsetsPerTrigger", "maxBytesPerTrigger", "minRowsPerTrigger", "maxTriggerDelay",
        "ignoreOverwrites", "consumer", "consumerTimeout", "mergeSchema", "takeOver",
    )
)  # fmt: skip
"""Names fixed for later versions. Refused, so that nobody believes they had an effect."""

_BY_KEY = {option.name.lower(): option for option in OPTIONS}
_NOT_YET_BY_KEY = {name.lower(): name for name in NOT_YET}


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

    def read_password(self) -> bytes:
        """The ledgers' password, read from the file by the process that needs it.

        Raises:
            OptionsError: ``passwordFile`` cannot be read here.
        """
        if self.password_file is None:
            return self.password.encode()
        try:
            with open(self.password_file, "rb") as file:
                return file.readline().rstrip(b"\r\n")
        except OSError as error:
            raise OptionsError(
                (f"option passwordFile: {error.strerror}; file={self.password_file}",)
            ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions(TargetOptions):
    """What a batch read was asked for."""

    starting: Position = EARLIEST
    ending: Position = LATEST
    partitions_min: int = 1
    partition_bytes_max: int = 128 << 20
    """Stored bytes; more means fewer, longer tasks (Spark's file sources use 128 MiB)."""
    partition_rows_max: int | None = None
    fails_on_data_loss: bool = True
    columns: tuple[str, ...] = ()
    """Empty: all."""
    includes_metadata: bool = False

    def defects(self) -> list[str]:
        """What cannot be served although each value alone is fine."""
        if not self.ledgers:
            return []
        given = (self.starting != EARLIEST, self.ending != LATEST)
        return (
            ["startingOffsets and endingOffsets are for logs, not for ledger="]
            if any(given)
            else []
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions(TargetOptions):
    """What a batch write was asked for; ``None`` means the log's own setting."""

    ensemble_size: int | None = None
    write_quorum: int | None = None
    ack_quorum: int | None = None
    digest_type: str | None = None
    payload_format: str | None = None
    compression: str | None = None
    entry_bytes: int | None = None
    """Encoded bytes; smaller entries prune better, larger ones cost less per row."""
    in_flight_bytes_max: int = 64 << 20
    stats_columns: int = 8
    creates_log: bool = True
    deleted_ledger_retention_ms: int = 3_600_000
    job_timeout_ms: int = 7 * 86_400_000
    txn_app_id: str | None = None
    txn_version: int | None = None

    def defects(self) -> list[str]:
        """What cannot be served although each value alone is fine."""
        found = []
        if self.ledgers or self.log is None:
            found.append('a write needs a log: .option("log", "name") or .save("name")')
        if (self.txn_app_id is None) != (self.txn_version is None):
            found.append("txnAppId and txnVersion go together")
        if self.entry_bytes is not None and not 1024 <= self.entry_bytes <= ENTRY_BYTES_MAX:
            found.append("option entryBytes: must lie between 1k and 4m")
        return found


def parse_read_options(options: Mapping[str, str], environment: Mapping[str, str]) -> ReadOptions:
    """The options of a batch read.

    Raises:
        OptionsError: with every defect; :class:`OptionUnknownError` if a key is not known.
    """
    return _parse(ReadOptions, READ, options, environment)


def parse_write_options(options: Mapping[str, str], environment: Mapping[str, str]) -> WriteOptions:
    """The options of a batch write.

    Raises:
        OptionsError: with every defect; :class:`OptionUnknownError` if a key is not known.
    """
    return _parse(WriteOptions, WRITE, options, environment)


def _parse(
    kind: type[T], direction: str, options: Mapping[str, str], environment: Mapping[str, str]
) -> T:
    values: dict[str, Any] = {}
    defects: list[str] = []
    unknown: list[str] = []
    client: list[tuple[str, str]] = []
    for key, value in sorted((key.lower(), value) for key, value in options.items()):
        option = _BY_KEY.get(key)
        if option is None and key.startswith(CLIENT_PREFIX) and key != CLIENT_PREFIX:
            client.append((key.removeprefix(CLIENT_PREFIX), value))
        elif option is None and key in _NOT_YET_BY_KEY:
            defects.append(f"option {_NOT_YET_BY_KEY[key]} is not supported yet by this version")
        elif option is None and not _is_sparks(key):
            unknown.append(_unknown(key))
        elif option is not None and direction in option.applies:
            try:
                values[option.attribute] = option.parse(value)
            except ValueError as error:
                # A secret must not travel in a message, however wrong it is.
                shown = "" if option.attribute == "password" else f"; value={value!r}"
                defects.append(f"option {option.name}: {error}{shown}")
    defects += _target_defects(values, {key.lower(): value for key, value in options.items()})
    if not values.get("metadata_service_uri"):
        values["metadata_service_uri"] = environment.get(METADATA_URI_VARIABLE, "").strip()
    if not values["metadata_service_uri"]:
        defects.append(
            "no cluster named: set the option metadataServiceUri, or the environment variable "
            f"{METADATA_URI_VARIABLE}, to e.g. zk+hierarchical://127.0.0.1:2181/ledgers"
        )
    parsed = kind(**values, client_settings=tuple(client))
    defects += parsed.defects()
    if unknown:
        raise OptionUnknownError((*unknown, *defects))
    if defects:
        raise OptionsError(tuple(defects))
    return parsed


def _is_sparks(key: str) -> bool:
    return key in _SPARK_KEYS or key.startswith(_SPARK_PREFIXES)


def _unknown(key: str) -> str:
    names = {**{name: option.name for name, option in _BY_KEY.items()}, **_NOT_YET_BY_KEY}
    nearest = difflib.get_close_matches(key, names, n=1, cutoff=0.5)
    if not nearest:
        return f"unknown option {key}; valid are {', '.join(option.name for option in OPTIONS)}"
    return f"unknown option {key}; did you mean {names[nearest[0]]}?"


def _target_defects(values: dict[str, Any], options: Mapping[str, str]) -> list[str]:
    """Settle which log or ledgers are meant; the path is another way to say ``log``."""
    defects = []
    path = options.get("path") or None
    if options.get("paths"):
        defects.append("load() takes one log; read several and union them")
    if path is not None and "log" in values and values["log"] != path:
        defects.append(f"option log and the path name two logs; log={values['log']} path={path}")
    if "log" not in values and path is not None:
        values["log"] = path
    if "log" in values:
        try:
            check_log_name(values["log"])
        except ValueError as error:
            defects.append(str(error))
    named = ("log" in values) + ("ledgers" in values)
    if named == 0 and not {"log", "ledger"} & set(options):
        defects.append("nothing named: set the option log, a path, or the option ledger")
    if named == 2:
        defects.append("options log and ledger exclude each other")
    if "password" in values and "password_file" in values:
        defects.append("options password and passwordFile exclude each other")
    return defects


def option_table() -> str:
    """The table of the documentation, as Markdown."""
    lines = ["| option | batch read | batch write | default | meaning |", "|---|---|---|---|---|"]
    for option in OPTIONS:
        marks = " | ".join("x" if way in option.applies else "" for way in (READ, WRITE))
        lines.append(f"| `{option.name}` | {marks} | {option.default} | {option.help} |")
    lines.append(f"| `{CLIENT_PREFIX}<setting>` | x | x | | Passed to the client's settings. |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(option_table() + "\n")
