"""Checks on construction end here: one error for all defects of a value."""

from __future__ import annotations


def raise_all(defects: list[str], of: object | None) -> None:
    """Raise one ``ValueError`` that names every defect, if there are any."""
    if defects:
        raise ValueError("; ".join(defects) + (f"; {of!r}" if of is not None else ""))
