"""Decodes a log's entries each by the schema they were written with.

A log's newest schema has every column that an older one has, so an older range lacks columns at
most: these are null. A range written after the read was planned may have more: these are dropped.
Schemas are few; each is asked for once by a task that meets it.
"""

from __future__ import annotations

import pyarrow as pa

from spark_bookkeeper.datasource.payload.codec import Decoder, decoder_of
from spark_bookkeeper.datasource.payload.envelope import Envelope
from spark_bookkeeper.datasource.read.readable import Readable
from spark_bookkeeper.datasource.session import Session


class Decoders:
    """Decoders by schema id for one task; each gives the columns ``names`` of ``readable``."""

    def __init__(self, session: Session, readable: Readable, names: list[str]) -> None:
        self._session = session
        self._readable = readable
        self._names = names
        self._made: dict[int, Decoder] = {}

    def of(self, schema_id: int) -> Decoder:
        """The decoder for entries of that schema of the log.

        Raises:
            NoSuchLogError, MetadataCorruptError: the log does not have the schema.
        """
        if schema_id not in self._made:
            self._made[schema_id] = self._make(schema_id)
        return self._made[schema_id]

    def _make(self, schema_id: int) -> Decoder:
        readable = self._readable
        newest = readable.schema.arrow
        # Ledgers by id were found to be of one schema when the read was planned.
        if readable.log_id is None or schema_id == readable.schema_id:
            return decoder_of(readable.payload_format, newest, self._names)
        nodes = self._session.nodes(readable.log_id, readable.log)
        own = self._session.run(self._session.schema(nodes, schema_id)).arrow
        had = set(own.names)
        kept = [name for name in self._names if name in had]
        decoder = decoder_of(readable.payload_format, own, kept)
        # Columns that grew inside are not missing: the cast to Spark's schema fills fields by name.
        missing = [newest.field(name) for name in self._names if name not in had]
        return _Widened(decoder, self._names, missing) if missing else decoder


class _Widened:
    """A decoder of entries that lack some of the wanted columns."""

    def __init__(self, decoder: Decoder, names: list[str], missing: list[pa.Field]) -> None:
        self._decoder = decoder
        self._names = names
        self._missing = missing

    def decode(
        self, ledger_id: int, entry_id: int, payload: bytes | memoryview
    ) -> tuple[Envelope, pa.RecordBatch]:
        """As :meth:`Decoder.decode`; what the entry lacks is null."""
        envelope, found = self._decoder.decode(ledger_id, entry_id, payload)
        columns = dict(zip(found.schema.names, found.columns, strict=True))
        for field in self._missing:
            columns[field.name] = pa.nulls(found.num_rows, field.type)
        return envelope, pa.RecordBatch.from_arrays(
            [columns[name] for name in self._names], self._names
        )
