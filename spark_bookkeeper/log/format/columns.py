"""Bounds of a column over a range, so that a reader can skip ranges it needs nothing of.

Pure. A bound may be looser than the values, never tighter: ``None`` bounds nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal

from bookkeeper_metadata.foundation.defects import raise_all

BOUND_BYTES_MAX = 64
"""Longest text or binary bound kept in a column range, bytes; longer ones are shortened."""
Scalar = bool | int | float | str | bytes | Decimal | date | datetime
"""A column bound: aware datetimes are Spark's TIMESTAMP, naive ones TIMESTAMP_NTZ."""


@dataclass(frozen=True, slots=True)
class ColumnRange:
    """Bounds of one column over a range: every non-null value v has minimum <= v <= maximum.

    A bound of ``None`` bounds nothing. Bounds need not be values that occur: long ones are
    shortened by :meth:`bounded`.
    """

    column: str
    minimum: Scalar | None
    maximum: Scalar | None
    nulls: int = 0
    """How many rows are null."""

    def __post_init__(self) -> None:
        # A read's planning makes 10^5 of these; only NaN differs from itself.
        is_nan = self.minimum != self.minimum or self.maximum != self.maximum
        if is_nan or self.nulls < 0:
            found = ["NaN bounds nothing; use None"] if is_nan else []
            raise_all([*found, *(["nulls is a count"] if self.nulls < 0 else [])], self)

    def bounded(self) -> ColumnRange:
        """The same claim with text and binary bounds of at most ``BOUND_BYTES_MAX`` bytes.

        A shortened minimum is a prefix; a shortened maximum is the least prefix above, or ``None``.
        """
        return ColumnRange(
            self.column, _shorten_minimum(self.minimum), _shorten_maximum(self.maximum), self.nulls
        )


def _shorten_minimum(bound: Scalar | None) -> Scalar | None:
    if isinstance(bound, bytes):
        return bound[:BOUND_BYTES_MAX]
    if isinstance(bound, str) and len(bound.encode()) > BOUND_BYTES_MAX:
        # Cut at a character: bytes of UTF-8 order like code points, so a prefix is never greater.
        return bound.encode()[:BOUND_BYTES_MAX].decode(errors="ignore")
    return bound


def _shorten_maximum(bound: Scalar | None) -> Scalar | None:
    if isinstance(bound, bytes) and len(bound) > BOUND_BYTES_MAX:
        # A byte of 0xff has no next one, so the last of the others is raised.
        kept = bound[:BOUND_BYTES_MAX].rstrip(b"\xff")
        return kept[:-1] + bytes([kept[-1] + 1]) if kept else None
    if isinstance(bound, str) and len(bound.encode()) > BOUND_BYTES_MAX:
        kept_text = bound.encode()[:BOUND_BYTES_MAX].decode(errors="ignore")
        while kept_text:
            following = _next_character(kept_text[-1])
            if following is not None:
                return kept_text[:-1] + following
            kept_text = kept_text[:-1]
        return None
    return bound


def _next_character(character: str) -> str | None:
    """The next Unicode scalar value: surrogates are skipped, they are no text."""
    code = ord(character) + 1
    if 0xD800 <= code <= 0xDFFF:
        code = 0xE000
    return chr(code) if code <= 0x10FFFF else None
