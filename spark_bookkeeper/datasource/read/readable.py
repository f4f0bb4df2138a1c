"""What a read is of: a log, or ledgers by id, and which columns that gives.

Asked of the cluster once, on the driver; picklable, because executors decode by it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import types as sql

from bookkeeper_metadata.errors import MetadataCorruptError
from spark_bookkeeper.datasource.errors import OptionsError
from spark_bookkeeper.datasource.options.model import ReadOptions
from spark_bookkeeper.datasource.schema import RAW_COLUMN, LogSchema, check_readable
from spark_bookkeeper.datasource.session import PAYLOAD_KEY, SCHEMA_KEY, Session
from spark_bookkeeper.log.format.model import PAYLOAD_FORMATS
from spark_bookkeeper.log.format.raw import RAW

METADATA_FIELDS = sql.StructType(
    [
        sql.StructField("_ledger", sql.LongType()),
        sql.StructField("_entry", sql.LongType()),
        sql.StructField("_position", sql.LongType()),
        sql.StructField("_batch_id", sql.LongType()),
        sql.StructField("_query_id", sql.StringType()),
        sql.StructField("_timestamp", sql.TimestampType()),
    ]
)
"""What ``includeMetadata`` adds. ``_batch_id`` and ``_query_id`` are null for batch writes."""

_LEDGER_FIELDS = sql.StructType(
    [
        sql.StructField("_ledger", sql.LongType()),
        sql.StructField("_entry", sql.LongType()),
        sql.StructField(RAW_COLUMN, sql.BinaryType()),
    ]
)
"""A ledger without our mark: nothing is known of its payloads."""


@dataclass(frozen=True, slots=True)
class Readable:
    """A log or ledgers, as found when the read was planned."""

    schema: LogSchema
    """Of the stored columns; of a foreign ledger the one column ``value``."""
    payload_format: str
    log_id: int | None = None
    """``None``: ledgers by id."""
    schema_id: int = 0
    """Number of the schema, the log's newest."""
    log: str = ""
    is_foreign: bool = False
    """Ledgers without our mark: they show ``_ledger`` and ``_entry`` always."""

    @property
    def is_raw(self) -> bool:
        """One entry is one row of one value."""
        return self.payload_format == RAW

    @property
    def title(self) -> str:
        """What messages call it."""
        return self.log or "ledger"

    def columns(self, options: ReadOptions) -> sql.StructType:
        """What ``load()`` shows.

        Raises:
            OptionsError: ``columns`` names what is not there, or a name is taken.
        """
        if self.is_foreign and options.includes_metadata:
            raise OptionsError(
                ("option includeMetadata: ledgers read by id show _ledger and _entry anyway",)
            )
        shown = _LEDGER_FIELDS if self.is_foreign else self.schema.spark
        by_name = {field.name: field for field in shown}
        missing = [name for name in options.columns if name not in by_name]
        if missing:
            raise OptionsError(tuple(_missing_column(name, list(by_name)) for name in missing))
        fields = [by_name[name] for name in options.columns] if options.columns else list(shown)
        if options.includes_metadata:
            taken = [field.name for field in METADATA_FIELDS if field.name in by_name]
            if taken:
                raise OptionsError(
                    (f"option includeMetadata: the log has columns {', '.join(taken)} of its own",)
                )
            fields += list(METADATA_FIELDS)
        return sql.StructType(fields)

    def check_wanted(self, options: ReadOptions, wanted: sql.StructType) -> None:
        """Refuse a user's own ``.schema(…)`` that this cannot give.

        Raises:
            SchemaMismatchError: with one line per column.
        """
        check_readable(self.title, self.columns(options), wanted)

    def bounded_names(self) -> frozenset[str]:
        """Columns that ranges or footers may know bounds of, metadata columns of a log included."""
        stored = frozenset(() if self.is_foreign else self.schema.spark.names)
        if self.log_id is None:
            return stored
        # Rows of a writer outside Spark are as old as their ledger, which planning does not ask.
        unknown = {"_timestamp"} if self.is_raw else set()
        return stored.union(METADATA_FIELDS.names) - (unknown - stored)

    def stored_names(self, wanted: sql.StructType) -> list[str]:
        """Which of the wanted columns are stored ones, in the wanted order."""
        stored = set(self.schema.spark.names)
        return [name for name in wanted.names if name in stored]


def _missing_column(name: str, there: list[str]) -> str:
    """Why ``columns`` cannot name it: nested, spelled in another case, or not there at all."""
    outer = name.partition(".")[0]
    if outer in there and outer != name:
        return (
            f"option columns: {name} is inside a column; columns are read whole, so name {outer} "
            "and select the field from it"
        )
    alike = [known for known in there if known.lower() == name.lower()]
    if alike:
        return f"option columns: no {name}; there is {alike[0]}: names differ in case"
    return f"option columns: no {name}; there are {', '.join(there)}"


def find_readable(session: Session, options: ReadOptions) -> Readable:
    """What the options name.

    Raises:
        NoSuchLogError, NoSuchLedgerError: it is not there.
        LogRecreatedError: the offsets are of another log of this name.
        OptionsError: ledgers of different kinds.
    """
    if options.ledgers:
        return _ledgers(session, options.ledgers)
    assert options.log is not None
    given = {
        position.log_id
        for position in (options.starting, options.ending)
        if position.log_id is not None
    }
    if len(given) > 1:
        raise OptionsError(("startingOffsets and endingOffsets are of two different logs",))
    expected = next(iter(given), None)
    nodes = session.run(session.catalog.find(options.log, expected_log_id=expected))
    head = session.run(nodes.head()).head
    return Readable(
        session.run(session.schema(nodes, head.schema_id)),
        head.settings.payload_format,
        nodes.log_id,
        head.schema_id,
        options.log,
    )


def _ledgers(session: Session, ledger_ids: tuple[int, ...]) -> Readable:
    marks = set()
    for ledger_id in ledger_ids:
        custom = session.client.ledger_metadata(ledger_id).custom_metadata
        marks.add((custom.get(SCHEMA_KEY), custom.get(PAYLOAD_KEY)))
    if len(marks) > 1:
        raise OptionsError(("option ledger: ledgers of different columns; read them one by one",))
    schema_mark, payload_format = marks.pop()
    if schema_mark is None or payload_format is None:
        value = sql.StructType([_LEDGER_FIELDS[RAW_COLUMN]])
        return Readable(
            LogSchema(value, pa.schema([(RAW_COLUMN, pa.binary())])), RAW, is_foreign=True
        )
    # Anybody can write marks into a ledger. An id has 19 digits at most.
    schema_of = re.fullmatch(rb"(\d{1,19})/(\d{1,19})", schema_mark)
    known = {name.encode(): name for name in PAYLOAD_FORMATS}
    if schema_of is None or payload_format not in known:
        raise MetadataCorruptError(
            f"ledger {ledger_ids[0]}",
            f"marks of no log this version knows: {SCHEMA_KEY}={schema_mark[:40]!r} "
            f"{PAYLOAD_KEY}={payload_format[:40]!r}",
        )
    log_id, schema_id = int(schema_of[1]), int(schema_of[2])
    schema = session.run(session.schema(session.nodes(log_id), schema_id))
    return Readable(schema, known[payload_format], schema_id=schema_id)
