"""``bookkeeper logs consumers``: how far queries that name themselves have read a log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import click

from spark_bookkeeper.cli.options import cluster_options, yes_option
from spark_bookkeeper.cli.output import print_json, print_result, print_table, printable_time


@click.group()
def consumers() -> None:
    """How far streaming queries with the option consumer have read; truncate --consumed waits."""


@consumers.command("list")
@click.argument("log")
@cluster_options
def list_consumers(log: str, uri: str, as_json: bool) -> None:
    """List how far every consumer has read, and whether truncate --consumed waits for it."""
    from spark_bookkeeper.admin.log_documents import describe_consumers, session_with

    session = session_with(uri)
    nodes = session.run(session.catalog.find(log))
    next_row = session.run(nodes.head()).head.next_row
    found = describe_consumers(session.run(nodes.cursors()), next_row, session.clock_ms())
    if as_json:
        print_json({"log": log, "consumers": found})
    else:
        print_consumers(found)


@consumers.command()
@click.argument("log")
@click.argument("consumer")
@yes_option
@cluster_options
def forget(log: str, consumer: str, *, is_sure: bool, uri: str, as_json: bool) -> None:
    """Forget a consumer, so that truncate --consumed waits for it no more.

    No query loses its place, which is in its own checkpoint. A query that still runs makes its
    consumer appear again.
    """
    from spark_bookkeeper.admin.log_documents import session_with

    session = session_with(uri)
    log_id = session.run(session.catalog.open(log)).log_id
    if not is_sure:
        click.confirm(
            f"Forget how far {consumer} has read {log}? Rows it needs may be dropped then.",
            abort=True,
        )
    forgotten = session.run(session.consumers(log_id, log).forget(consumer))
    row, line = None, f"{log} has no consumer {consumer}"
    if forgotten is not None:
        row, line = forgotten.row, f"forgot {consumer} at row {forgotten.row} of {log}"
    document = {"log": log, "consumer": consumer, "forgotten_row": row}
    print_result(document, line, as_json=as_json)


def print_consumers(found: Iterable[Mapping[str, Any]]) -> None:
    """Print cursors as a table."""
    keys = ("consumer", "row", "lag", "is_live")
    print_table(
        ("consumer", "row", "lag", "live", "last moved"),
        ((*(each[key] for key in keys), printable_time(each["touched_ms"])) for each in found),
    )
