"""How results are printed: tables for people, one JSON document for machines."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.table import Table

from spark_bookkeeper.log.errors import iso8601

LINE_WIDTH_WITHOUT_TERMINAL = 200
"""Wide enough that nothing folds when a table is piped into another program."""
TIME_KEYS = frozenset(("created_ms", "last_commit_ms"))
"""Keys of documents whose numbers are points in time; others in ms are durations."""


def print_json(document: Any) -> None:
    """One document, indented, keys in the order given."""
    click.echo(json.dumps(document, indent=2, default=str))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """A plain table; numbers to the right."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    materialized = [list(row) for row in rows]
    for index, column in enumerate(columns):
        is_number = bool(materialized) and all(isinstance(row[index], int) for row in materialized)
        table.add_column(column, justify="right" if is_number else "left")
    for row in materialized:
        table.add_row(*("" if value is None else str(value) for value in row))
    _console().print(table)


def print_facts(facts: Mapping[str, Any]) -> None:
    """One ``name  value`` per line."""
    width = max((len(name) for name in facts), default=0)
    for name, value in facts.items():
        click.echo(f"{name:<{width}}  {'' if value is None else value}")


def printable_time(time_ms: int) -> str:
    """A time in ms since the epoch as ISO 8601 in UTC; empty where there is none, below 1."""
    return iso8601(time_ms) if time_ms > 0 else ""


def printable_facts(document: Mapping[str, Any]) -> dict[str, Any]:
    """A document for people: its keys as words, its points in time as times."""
    return {
        key.removesuffix("_ms").replace("_", " "): printable_time(value)
        if key in TIME_KEYS
        else value
        for key, value in document.items()
    }


def printable(value: bytes) -> str:
    """Bytes as text where they are text, else as ``0x…``."""
    try:
        text = value.decode("utf-8")
    except UnicodeDecodeError:
        return "0x" + value.hex()
    return text if text.isprintable() else "0x" + value.hex()


def _console() -> Console:
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=LINE_WIDTH_WITHOUT_TERMINAL)
    return console
