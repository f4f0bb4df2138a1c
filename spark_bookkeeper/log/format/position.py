"""Where one appended value stands in a log, and how a place to start reading from is named."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """The place of one row; positions of one log compare in the order of its rows."""

    row: int
    """Rows of the log before it since the log's creation; never reused."""
    ledger_id: int
    entry_id: int


Start = str | int | Position
"""``"earliest"``, ``"latest"``, a row number, or the position of a row; inclusive."""


def row_of(start: Start) -> str | int:
    """The row number, or the word that stands for one."""
    return start.row if isinstance(start, Position) else start
