"""``bookkeeper logs``: an operator's work on logs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

import click

from spark_bookkeeper.cli.options import debug_option, json_option, uri_option
from spark_bookkeeper.cli.output import print_facts, print_json, print_table

if TYPE_CHECKING:
    import pyarrow as pa


@click.group()
def logs() -> None:
    """Logs, the named tables made of ledgers: list, show, read, clean."""


@logs.command("list")
@uri_option
@json_option
@debug_option
def list_logs(uri: str, as_json: bool) -> None:
    """List every log with its rows."""
    from spark_bookkeeper.cli import log_documents

    found = log_documents.list_logs(log_documents.session_with(uri))
    if as_json:
        print_json({"logs": found})
        return
    keys = ("log", "rows", "size_bytes", "base_row", "next_row")
    print_table(
        ("log", "rows", "bytes", "first row", "next row"),
        ([each[key] for key in keys] for each in found),
    )


@logs.command()
@click.argument("log")
@uri_option
@json_option
@debug_option
def show(log: str, uri: str, as_json: bool) -> None:
    """Show a log's settings, schema, ledgers and transactions."""
    from spark_bookkeeper.cli.log_documents import describe_log, session_with

    document = describe_log(session_with(uri), log)
    if as_json:
        print_json(document)
        return
    facts = {**document, **document.pop("settings")}
    ranges, columns = facts.pop("ranges"), facts.pop("schema")
    transactions = facts.pop("transactions")
    del facts["settings"]
    print_facts({key.replace("_", " "): value for key, value in facts.items()})
    print_table(("column", "type"), ((each["column"], each["type"]) for each in columns))
    keys = ("ledger_id", "first_entry", "last_entry", "first_row", "rows", "size_bytes")
    print_table(
        ("ledger", "first entry", "last entry", "first row", "rows", "bytes"),
        ([each[key] for key in keys] for each in ranges),
    )
    if transactions:
        print_table(("transaction", "last version"), transactions.items())


@logs.command()
@click.argument("log")
@click.option("--first-row", default="earliest", show_default=True, help="Row number or word.")
@click.option("--end-row", default="latest", show_default=True, help="The first row left out.")
@click.option("--limit", type=click.IntRange(min=0), help="Print at most this many rows.")
@click.option("--password", default="", envvar="BOOKKEEPER_PASSWORD", help="Of the log's ledgers.")
@uri_option
@debug_option
def read(log: str, *, uri: str, first_row: str, end_row: str, **wanted: Any) -> None:
    """Print rows as JSON, one per line, in the log's order."""
    from spark_bookkeeper.cli.log_documents import session_with
    from spark_bookkeeper.datasource.source import BookKeeperSource

    session = session_with(uri)
    log_id = session.run(session.catalog.open(log)).log_id
    # The very classes Spark calls, without Spark: the same rows, the same errors.
    options = {"metadataServiceUri": uri, "log": log}
    options["startingOffsets"] = _offset(log_id, first_row)
    options["endingOffsets"] = _offset(log_id, end_row)
    if wanted["password"]:
        options["password"] = wanted["password"]
    source = BookKeeperSource({key.lower(): value for key, value in options.items()})
    reader = source.reader(source.schema())
    left = wanted["limit"]
    for partition in reader.partitions():
        for batch in cast("Iterator[pa.RecordBatch]", reader.read(partition)):
            for row in batch.slice(0, left).to_pylist():
                click.echo(json.dumps(row, default=_as_text))
            if left is not None:
                left -= min(left, batch.num_rows)
                if left == 0:
                    return


@logs.command()
@click.argument("log")
@click.option("--dry-run", is_flag=True, help="Change nothing, say what would go.")
@uri_option
@json_option
@debug_option
def gc(log: str, dry_run: bool, uri: str, as_json: bool) -> None:
    """Collect what dead writers and overwrites left behind; safe at any moment."""
    from dataclasses import asdict

    from spark_bookkeeper.cli.log_documents import session_with
    from spark_bookkeeper.log.collect import Collector

    session = session_with(uri)
    log_id = session.run(session.catalog.open(log)).log_id
    collector = Collector(session.sweeper)
    report = asdict(session.run(collector.collect(log_id, log=log, is_dry_run=dry_run)))
    if as_json:
        print_json({"log": log, "dry_run": dry_run, **report})
    else:
        print_facts({key.replace("_", " "): len(value) for key, value in report.items()})


def _offset(log_id: int, position: str) -> str:
    """A row number as the data source writes it; words stay words."""
    return json.dumps({"log": log_id, "row": int(position)}) if position.isdigit() else position


def _as_text(value: Any) -> str:
    """What JSON has no form for: bytes as hex, decimals and times as they read."""
    return value.hex() if isinstance(value, bytes) else str(value)
