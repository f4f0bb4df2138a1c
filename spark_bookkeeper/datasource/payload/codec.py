"""Which codec writes and reads the entries of a log: one interface, an implementation per format.

``raw`` has no codec: there a row is an entry, see :mod:`spark_bookkeeper.datasource.payload.raw`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa

from spark_bookkeeper.datasource.payload.arrow import ArrowDecoder, ArrowEncoder
from spark_bookkeeper.datasource.payload.avro import AvroDecoder, AvroEncoder
from spark_bookkeeper.datasource.payload.avro_schema import AVRO_SCHEMA_KEY, avro_json
from spark_bookkeeper.datasource.payload.envelope import Envelope

AVRO = "avro"


class Encoder(Protocol):
    """Makes the payloads of one ledger."""

    def encode(self, batch: pa.RecordBatch, first_row: int, time_ms: int) -> bytes:
        """The payload of one entry. ``first_row`` counts in the ledger."""


class Decoder(Protocol):
    """Reads entries of one schema; gives the columns it was made for, in their order."""

    def decode(
        self, ledger_id: int, entry_id: int, payload: bytes | memoryview
    ) -> tuple[Envelope, pa.RecordBatch]:
        """The envelope and the rows; the batch may share the payload's memory.

        Raises:
            PayloadCorruptError: the bytes are not what the format says.
        """


def encoder_of(payload_format: str, schema: pa.Schema, schema_id: int, compression: str) -> Encoder:
    """Encodes rows of ``schema``; ``compression`` is for ``arrow``."""
    if payload_format == AVRO:
        return AvroEncoder(schema, schema_id)
    return ArrowEncoder(schema, schema_id, compression)


def decoder_of(
    payload_format: str, schema: pa.Schema, columns: Sequence[str] | None = None
) -> Decoder:
    """Decodes entries that were encoded with ``schema``; ``columns`` limits what is decoded."""
    if payload_format == AVRO:
        return AvroDecoder(schema, columns)
    return ArrowDecoder(schema, columns)


def ledger_marks(payload_format: str, schema: pa.Schema) -> dict[str, bytes]:
    """What a ledger's custom metadata says to consumers outside Spark about its entries."""
    return {AVRO_SCHEMA_KEY: avro_json(schema)} if payload_format == AVRO else {}


def check_storable(payload_format: str, schema: pa.Schema) -> None:
    """Refuse columns that the format cannot express.

    Raises:
        UnsupportedTypeError: names them all.
    """
    if payload_format == AVRO:
        avro_json(schema)
