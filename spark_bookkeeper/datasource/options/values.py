"""What the text of one option means: each parser takes Spark's string, returns a value or refuses.

Every ``ValueError`` says what would have been right, without the option's name, which the caller
knows. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime


def text(value: str) -> str:
    """Anything but blanks, without the blanks around it."""
    if not value.strip():
        raise ValueError("must not be empty")
    return value.strip()


def any_text(value: str) -> str:
    """The value as it is; a password may be empty or end in a blank."""
    return value


def boolean(value: str) -> bool:
    """``true`` or ``false``; a typing mistake never counts as false."""
    known = {"true": True, "false": False}
    if value.strip().lower() not in known:
        raise ValueError("must be true or false")
    return known[value.strip().lower()]


def count(value: str) -> int:
    """A whole number above 0."""
    number = int(value) if re.fullmatch(r"\s*\d{1,18}\s*", value) else 0
    if number < 1:
        raise ValueError("must be a whole number above 0")
    return number


def whole(value: str) -> int:
    """A whole number, 0 or more."""
    if not re.fullmatch(r"\s*\d{1,18}\s*", value):
        raise ValueError("must be a whole number, 0 or more")
    return int(value)


def parse_size_bytes(value: str) -> int:
    """``131072``, ``128k``, ``64m`` or ``2g`` as bytes; units are powers of 1024.

    Raises:
        ValueError: anything else, or 0.
    """
    found = re.fullmatch(r"\s*(\d{1,12})\s*([kmg]?)(?:i?b)?\s*", value.lower())
    if found is None or int(found[1]) == 0:
        raise ValueError(
            "must be a size above 0 such as 131072, 128k, 64m or 1g, of at most 12 digits"
        )
    return int(found[1]) << {"": 0, "k": 10, "m": 20, "g": 30}[found[2]]


def parse_duration_ms(value: str) -> int:
    """``500ms``, ``30s``, ``15m``, ``1h`` or ``7d`` as milliseconds.

    Raises:
        ValueError: anything else.
    """
    found = re.fullmatch(r"\s*(\d{1,9})\s*(ms|s|m|h|d)\s*", value.lower())
    if found is None:
        raise ValueError(
            "must be a duration such as 500ms, 30s, 15m, 1h or 7d, of at most 9 digits"
        )
    return (
        int(found[1]) * {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}[found[2]]
    )


def positive_duration_ms(value: str) -> int:
    """As :func:`parse_duration_ms`, above 0."""
    found = parse_duration_ms(value)
    if found == 0:
        raise ValueError("must be a duration above 0")
    return found


def parse_timestamp_ms(value: str) -> int:
    """Milliseconds since the epoch, or ISO 8601; a time without a zone is UTC.

    Raises:
        ValueError: anything else.
    """
    plain = value.strip()
    if re.fullmatch(r"\d{1,15}", plain):
        return int(plain)
    try:
        found = datetime.fromisoformat(plain)
        # With its zone: a time of 1970 may still lie before the epoch.
        instant_s = (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        instant_s = -1
    if instant_s < 0:
        raise ValueError("must be milliseconds since 1970 or ISO 8601 such as 2026-01-31T12:00:00Z")
    return int(instant_s * 1000)


def ledger_ids(value: str) -> tuple[int, ...]:
    """``42`` or ``7,8,9``; 63 bits each, none twice."""
    parts = [part.strip() for part in value.split(",")]
    if not all(re.fullmatch(r"\d{1,19}", part) and int(part) < 1 << 63 for part in parts):
        raise ValueError("must be a ledger id, or ids such as 7,8,9")
    if len(set(parts)) != len(parts):
        raise ValueError("names a ledger twice")
    return tuple(int(part) for part in parts)


def column_names(value: str) -> tuple[str, ...]:
    """``a,b``, or a JSON list when a name holds a comma."""
    if value.lstrip().startswith("["):
        try:
            listed = json.loads(value)
        except ValueError:
            listed = None
        if not isinstance(listed, list) or not all(isinstance(name, str) for name in listed):
            raise ValueError('must be names such as a,b or ["a","b"]')
        names = tuple(listed)
    else:
        names = tuple(part.strip() for part in value.split(","))
    if not names or not all(names) or len(set(names)) != len(names):
        raise ValueError("must name each column once")
    return names


def one_of(*allowed: str) -> Callable[[str], str]:
    """A parser for one of these names, spelled in any case."""

    def parse(value: str) -> str:
        for name in allowed:
            if value.strip().lower() == name.lower():
                return name
        raise ValueError(f"must be one of {', '.join(allowed)}")

    return parse


@dataclass(frozen=True, slots=True)
class Position:
    """Where a read begins or ends: a symbol, or a row number of one log."""

    symbol: str
    """``earliest``, ``latest`` or ``row``."""
    row: int = 0
    log_id: int | None = None
    """The log the row number belongs to, when the user said so."""


EARLIEST = Position("earliest")
LATEST = Position("latest")


def parse_position(value: str) -> Position:
    """``earliest``, ``latest``, or ``{"row": N}`` with an optional ``"log"`` id.

    Raises:
        ValueError: anything else.
    """
    if value.strip().lower() in ("earliest", "latest"):
        return Position(value.strip().lower())
    try:
        found = json.loads(value)
    except ValueError:
        found = None
    if isinstance(found, dict) and set(found) <= {"log", "row"} and _is_whole(found.get("row")):
        log_id = found.get("log")
        if log_id is None or _is_whole(log_id):
            return Position("row", found["row"], log_id)
    raise ValueError('must be earliest, latest or JSON such as {"log": 123, "row": 1000}')


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63
