"""Which keys are ours, which are Spark's, which are Kafka's habits; all defects in one error.

Keys arrive lower-cased from Spark, so they are compared without case. An option of the other
direction is accepted and not read, because a view is read and written with the same options; one of
the other trigger - a stream's in a batch, a batch's in a stream - is refused, because
its user believes that it has an effect. Pure: the environment is an argument.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, TypeVar

from bookkeeper_metadata.environment import METADATA_URI_VARIABLE, read_metadata_uri
from bookkeeper_metadata.paths import parse_uri
from spark_bookkeeper.datasource.errors import OptionsError, OptionUnknownError
from spark_bookkeeper.datasource.options.client import client_settings
from spark_bookkeeper.datasource.options.model import (
    ReadOptions,
    StreamReadOptions,
    TargetOptions,
    WriteOptions,
)
from spark_bookkeeper.datasource.options.table import CLIENT_PREFIX, OPTIONS, READS, Option, Way
from spark_bookkeeper.environment import given_client_settings
from spark_bookkeeper.log.nodes.paths import check_log_name

# Not ours and no mistake: Spark adds them itself, of save(), of a query, of a table in its catalog.
_SPARK_KEYS = frozenset(
    (
        "checkpointlocation", "queryname", "owner", "provider", "path", "paths", "name", "comment",
        "location", "external", "is_managed_location", "table_type", "outputmode", "numpartitions",
    )
)  # fmt: skip
_SPARK_PREFIXES = ("option.", "__", "spark.", "asyncprogresstracking")
KAFKA_HABITS: Mapping[str, str] = {
    "subscribe": "name the log with the option log or the path",
    "subscribepattern": "a stream reads one log; union several streams",
    "assign": "a log has no fixed partitions to assign; use minPartitions or maxRowsPerPartition",
    "topic": "name the log with the option log or the path",
    "startingoffsetsbytimestamp": "use startingTimestamp",
    "startingoffsetsbytimestampstrategy": "use startingTimestampStrategy",
    "endingoffsetsbytimestamp": "use endingTimestamp",
    "includeheaders": "a row is a row of your columns; use includeMetadata for where it lies",
    "groupidprefix": "positions live in Spark's checkpoint; consumer names a cursor for retention",
    "fetchoffset.numretries": "retries are the client's; see bookkeeper.client.*",
    "fetchoffset.retryintervalms": "retries are the client's; see bookkeeper.client.*",
    "kafkaconsumer.polltimeoutms": "timeouts are the client's; see bookkeeper.client.*",
}
"""What a Kafka user would type, lower-cased, and what to do here."""
_KAFKA_PREFIX = "kafka."
OPTIONS_LOST_HINT = (
    " (no option arrived at all: Spark drops the OPTIONS of a CREATE TABLE, so use CREATE "
    "TEMPORARY VIEW … OPTIONS (…), or repeat them in SELECT … FROM t WITH (…))"
)
"""Added where a table of Spark's catalog is the likely reason: Spark never passes its options on."""

_BY_KEY: dict[str, Option] = {
    name.lower(): option for option in OPTIONS for name in (option.name, *option.aliases)
}
T = TypeVar("T", bound=TargetOptions)


def parse_read_options(options: Mapping[str, str], environment: Mapping[str, str]) -> ReadOptions:
    """The options of a batch read.

    Raises:
        OptionsError: with every defect; :class:`OptionUnknownError` if a key is not known.
    """
    return _Parsing(options, environment, (Way.BATCH_READ,)).into(ReadOptions)


def parse_schema_options(options: Mapping[str, str], environment: Mapping[str, str]) -> ReadOptions:
    """What a read's columns depend on, where Spark does not say yet whether it will be a stream.

    Raises: as :func:`parse_read_options`.
    """
    return _Parsing(options, environment, READS).into(ReadOptions)


def parse_stream_read_options(
    options: Mapping[str, str], environment: Mapping[str, str]
) -> StreamReadOptions:
    """The options of a streaming read; raises as :func:`parse_read_options`."""
    return _Parsing(options, environment, (Way.STREAM_READ,)).into(StreamReadOptions)


def parse_write_options(
    options: Mapping[str, str], environment: Mapping[str, str], *, is_stream: bool = False
) -> WriteOptions:
    """The options of a batch or streaming write; raises as :func:`parse_read_options`."""
    way = Way.STREAM_WRITE if is_stream else Way.BATCH_WRITE
    return _Parsing(options, environment, (way,)).into(WriteOptions)


class _Parsing:
    """One pass over the options; collects values and every defect."""

    def __init__(
        self, options: Mapping[str, str], environment: Mapping[str, str], ways: tuple[Way, ...]
    ) -> None:
        self._ways = ways
        self._environment = environment
        self._values: dict[str, Any] = {}
        self._defects: list[str] = []
        self._unknown: list[str] = []
        self._client: list[tuple[str, str]] = []
        self._options = {key.lower(): value for key, value in options.items()}
        # Sorted, so that the same mistakes are told in the same order.
        for key, value in sorted(self._options.items()):
            self._take(key, value)
        self._settle_target()
        self._settle_cluster()
        self._settle_client()

    def into(self, kind: type[T]) -> T:
        """The options as ``kind``.

        Raises:
            OptionsError: with every defect; :class:`OptionUnknownError` if a key is not known.
        """
        # Where only columns are asked for, a stream's options are parsed for their defects alone.
        known = kind.__dataclass_fields__
        values = {name: value for name, value in self._values.items() if name in known}
        parsed = kind(**values, client_settings=tuple(self._client))
        defects = [*self._defects, *parsed.defects(frozenset(values))]
        try:
            client_settings(self._client)
        except OptionsError as error:
            defects += error.defects
        if self._unknown:
            raise OptionUnknownError((*self._unknown, *defects))
        if defects:
            raise OptionsError(tuple(defects))
        return parsed

    def _take(self, key: str, value: str) -> None:
        option = _BY_KEY.get(key)
        if option is not None:
            self._take_ours(option, key, value)
        elif key.startswith(CLIENT_PREFIX) and key != CLIENT_PREFIX:
            self._client.append((key.removeprefix(CLIENT_PREFIX), value))
        elif not (key in _SPARK_KEYS or key.startswith(_SPARK_PREFIXES)):
            self._unknown.append(_unknown(key))

    def _take_ours(self, option: Option, key: str, value: str) -> None:
        if not set(option.applies) & set(self._ways):
            same_direction = [way for way in option.applies if way.is_read == self._ways[0].is_read]
            if same_direction:
                ways = " and ".join(way.value for way in same_direction)
                self._defects.append(
                    f"option {option.name} is for a {ways}, not a {self._ways[0].value}"
                )
            return
        if option.attribute in self._values:
            both = " and ".join((option.name, *option.aliases))
            self._defects.append(f"options {both} are one and the same; set one of them")
            return
        try:
            self._values[option.attribute] = option.parse(value)
        except ValueError as error:
            # A secret must not travel in a message, however wrong it is.
            shown = "" if option.attribute == "password" else f"; value={value!r}"
            self._defects.append(f"option {option.name}: {error}{shown}")

    def _settle_target(self) -> None:
        """Settle which log or ledgers are meant; the path is another way to say ``log``."""
        values, defects = self._values, self._defects
        path = self._options.get("path") or None
        if self._options.get("paths"):
            defects.append("load() takes one log; read several and union them")
        if path is not None and "log" in values and values["log"] != path:
            defects.append(
                f"option log and the path name two logs; log={values['log']} path={path}"
            )
        if "log" not in values and path is not None:
            values["log"] = path
        if "log" in values:
            try:
                check_log_name(values["log"])
            except ValueError as error:
                defects.append(str(error))
        named = ("log" in values) + ("ledgers" in values)
        # An option that was given but is wrong has been reported already.
        if named == 0 and not {"log", "ledger"} & set(self._options):
            hint = "" if self._options else OPTIONS_LOST_HINT
            defects.append(f"nothing named: set the option log, a path, or the option ledger{hint}")
        if named == 2:
            defects.append("options log and ledger exclude each other")
        if "password" in values and "password_file" in values:
            defects.append("options password and passwordFile exclude each other")

    def _settle_cluster(self) -> None:
        if not self._values.get("metadata_service_uri"):
            uri = read_metadata_uri(self._environment) or ""
            self._values["metadata_service_uri"] = uri
        if not self._values["metadata_service_uri"]:
            self._defects.append(
                "no cluster named: set the option metadataServiceUri, or the environment variable "
                f"{METADATA_URI_VARIABLE}, to e.g. zk+hierarchical://127.0.0.1:2181/ledgers"
            )
            return
        try:
            parse_uri(self._values["metadata_service_uri"])
        except ValueError as error:
            self._defects.append(f"option metadataServiceUri: {error}")

    def _settle_client(self) -> None:
        """As for the cluster: what the driver's environment says, its executors are told as options."""
        given = {key.replace("_", "") for key, _ in self._client}
        for name, value in given_client_settings(self._environment):
            key = name.replace("_", "")
            if key not in given:
                self._client.append((key, value))


def _unknown(key: str) -> str:
    if key in KAFKA_HABITS:
        return f"unknown option {key}, which is Kafka's: {KAFKA_HABITS[key]}"
    if key.startswith(_KAFKA_PREFIX):
        return f"unknown option {key}: there is no Kafka client here; see {CLIENT_PREFIX}*"
    nearest = difflib.get_close_matches(key, _BY_KEY, n=1, cutoff=0.5)
    if not nearest:
        return f"unknown option {key}; valid are {', '.join(option.name for option in OPTIONS)}"
    return f"unknown option {key}; did you mean {_BY_KEY[nearest[0]].name}?"
