"""How results are printed: tables for people, one JSON document for machines."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.table import Table

LINE_WIDTH_WITHOUT_TERMINAL = 200
"""Wide enough that nothing folds when a table is piped into another program."""


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
