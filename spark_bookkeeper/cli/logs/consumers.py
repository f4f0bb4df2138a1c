"""``bookkeeper logs consumers``: how far queries that name themselves have read a log."""

from __future__ import annotations

import click

from spark_bookkeeper.cli.options import cluster_options, confirm, yes_option
from spark_bookkeeper.cli.output import print_list, print_result

COLUMNS = {
    "consumer": "consumer",
    "row": "row",
    "lag": "lag",
    "live": "is_live",
    "last moved": "touched_ms",
}
"""Of the table of consumers."""


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
    print_list({"log": log, "consumers": found}, "consumers", COLUMNS, as_json=as_json)


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
    confirm(
        f"Forget how far {consumer} has read {log}? Rows it needs may be dropped then.", is_sure
    )
    forgotten = session.run(session.consumers(log_id, log).forget(consumer))
    row, line = None, f"{log} has no consumer {consumer}"
    if forgotten is not None:
        row, line = forgotten.row, f"forgot {consumer} at row {forgotten.row} of {log}"
    document = {"log": log, "consumer": consumer, "forgotten_row": row}
    print_result(document, line, as_json=as_json)
