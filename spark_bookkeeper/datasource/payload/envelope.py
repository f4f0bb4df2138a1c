"""The 32 bytes in front of every entry we write but ``raw`` ones: what the entry holds.

    magic 4 · version 1 · kind 1 · zero 2 · schema id 4 · first row 8 · rows 4 · time ms 8   (big-endian)

``first row`` counts from the ledger's own first row, so entries can be moved to another log and a
reader knows its place without the entries before. Pure.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum, unique

MAGIC = b"SpBK"
VERSION = 1
ENVELOPE_SIZE = 32
"""Bytes; a multiple of 8, so the Arrow message behind it stays aligned to the entry's start."""
ROWS_MAX = 1 << 24
"""Rows one entry may claim: bounds what a reader believes of columns that have no bytes."""

_LAYOUT = struct.Struct(">4sBBHIqIq")


@unique
class EntryKind(IntEnum):
    """What follows the envelope. Numbers are stored: never reuse one."""

    ARROW = 1
    FOOTER = 2
    AVRO = 3


class MalformedEnvelopeError(ValueError):
    """Bytes that do not begin with an envelope this version understands."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """What an entry says about itself."""

    kind: EntryKind
    schema_id: int
    """Number of the schema in its log."""
    first_row: int
    """Row of the ledger its first row is, from 0. Of a footer: rows of the whole ledger."""
    rows: int
    """Of a footer: entries it describes."""
    time_ms: int
    """Writer's wall clock when the entry was encoded, ms since the epoch."""

    def encode(self) -> bytes:
        """The 32 bytes."""
        return _LAYOUT.pack(
            MAGIC, VERSION, self.kind, 0, self.schema_id, self.first_row, self.rows, self.time_ms
        )


def parse_envelope(payload: bytes | memoryview) -> Envelope:
    """The envelope at the payload's start.

    Raises:
        MalformedEnvelopeError: too short, foreign, of a later version, or with impossible numbers.
    """
    if len(payload) < ENVELOPE_SIZE:
        raise MalformedEnvelopeError(f"{len(payload)} bytes hold no envelope")
    magic, version, kind, _, schema_id, first_row, rows, time_ms = _LAYOUT.unpack_from(payload)
    if magic != MAGIC:
        raise MalformedEnvelopeError("not written by this connector")
    if version != VERSION:
        raise MalformedEnvelopeError(f"envelope version {version}; this version reads {VERSION}")
    if kind not in EntryKind._value2member_map_:
        raise MalformedEnvelopeError(f"unknown kind of entry {kind}")
    if first_row < 0 or rows > ROWS_MAX:
        raise MalformedEnvelopeError(f"impossible rows {first_row}+{rows}")
    return Envelope(EntryKind(kind), schema_id, first_row, rows, time_ms)
