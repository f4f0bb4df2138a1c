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
TIME_KEYS = frozenset(
    ("commit_ms", "created_ms", "last_commit_ms", "touched_ms", "waiting_until_ms")
)
"""Keys of documents whose numbers are points in time; others in ms are durations."""


def print_json(document: Any) -> None:
    """One document, indented, keys in the order given."""
    click.echo(json.dumps(document, indent=2, default=str))


def print_result(document: Mapping[str, Any], line: object, *, as_json: bool) -> None:
    """What a command did: its document with ``--json``, else one line for people."""
    if as_json:
        print_json(document)
    else:
        click.echo(line)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """A plain table; columns of numbers are aligned to the right."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    materialized = [list(row) for row in rows]
    for index, column in enumerate(columns):
        is_number = bool(materialized) and all(isinstance(row[index], int) for row in materialized)
        table.add_column(column, justify="right" if is_number else "left")
    for row in materialized:
        table.add_row(*("" if value is None else str(value) for value in row))
    _console().print(table)


def print_documents(columns: Mapping[str, str], documents: Iterable[Mapping[str, Any]]) -> None:
    """A table with a row for each document: under each heading what it says at that key."""
    rows = [[_for_people(key, each[key]) for key in columns.values()] for each in documents]
    print_table(tuple(columns), rows)


def print_list(
    document: Mapping[str, Any], name: str, columns: Mapping[str, str], *, as_json: bool
) -> None:
    """What a command found: the document with ``--json``, else the list of that name as a table."""
    if as_json:
        print_json(document)
    else:
        print_documents(columns, document[name])


def print_fields(fields: Mapping[str, Any]) -> None:
    """One ``name  value`` per line."""
    width = max((len(name) for name in fields), default=0)
    for name, value in fields.items():
        click.echo(f"{name:<{width}}  {'' if value is None else value}")


def printable_time(time_ms: int) -> str:
    """A time in ms since the epoch as ISO 8601 in UTC; empty where there is none, below 1."""
    return iso8601(time_ms) if time_ms > 0 else ""


def printable_duration(duration_ms: int) -> str:
    """As options take it: ``7d``, ``90s``."""
    units = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
    unit = next(name for name, ms in units.items() if duration_ms % ms == 0)
    return f"{duration_ms // units[unit]}{unit}"


def printable_size(size_bytes: int) -> str:
    """Bytes in the largest unit of which there is one: ``312 MiB``, ``1.5 TiB``."""
    size, units = float(size_bytes), ["B", "KiB", "MiB", "GiB", "TiB"]
    while size >= 1024 and len(units) > 1:
        size /= 1024
        del units[0]
    return f"{size:.0f} {units[0]}" if size >= 10 or units[0] == "B" else f"{size:.1f} {units[0]}"


def printable_fields(document: Mapping[str, Any]) -> dict[str, Any]:
    """A document for people: its keys as words, its points in time in ISO 8601."""
    return {
        key.removesuffix("_ms").replace("_", " "): _for_people(key, value)
        for key, value in document.items()
    }


def _for_people(key: str, value: Any) -> Any:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return printable_time(value or 0) if key in TIME_KEYS else value


def _console() -> Console:
    console = Console(highlight=False)
    if console.is_terminal:
        return console
    return Console(highlight=False, width=LINE_WIDTH_WITHOUT_TERMINAL)
