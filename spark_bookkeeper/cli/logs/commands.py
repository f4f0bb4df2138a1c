"""``bookkeeper logs``: an operator's work on logs."""

from __future__ import annotations

import sys
from collections import deque
from contextlib import suppress
from dataclasses import asdict
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from spark_bookkeeper.cli import options, output
from spark_bookkeeper.cli.logs.consumers import COLUMNS, consumers
from spark_bookkeeper.cli.logs.gc import gc
from spark_bookkeeper.cli.logs.optimize import optimize
from spark_bookkeeper.cli.logs.retention import retention_line, set_retention, truncate
from spark_bookkeeper.cli.logs.transactions import txns
from spark_bookkeeper.cli.records import (
    length_prefixed_option,
    print_record,
    raw_option,
    records_of_stdin,
)
from spark_bookkeeper.log.format.raw import RAW

if TYPE_CHECKING:
    from spark_bookkeeper import BookKeeper, Log
    from spark_bookkeeper.blocking.add_future import AddFuture
    from spark_bookkeeper.log.format.position import Position


@click.group()
def logs() -> None:
    """Logs, the named tables made of ledgers: list, show, read, follow, append to, clean."""


logs.add_command(consumers)
logs.add_command(gc)
logs.add_command(optimize)
logs.add_command(set_retention)
logs.add_command(truncate)
logs.add_command(txns)


@logs.command("list")
@options.cluster_options
def list_logs(uri: str, as_json: bool) -> None:
    """List every log with its id, its rows and the time of its last commit."""
    from spark_bookkeeper.admin import log_documents

    found = log_documents.list_logs(log_documents.session_with(uri))
    columns = {"log": "log", "id": "log_id", "rows": "rows", "bytes": "size_bytes"}
    columns |= {"first row": "base_row", "next row": "next_row", "last commit": "last_commit_ms"}
    output.print_list({"logs": found}, "logs", columns, as_json=as_json)


@logs.command()
@click.argument("log")
@options.cluster_options
def show(log: str, uri: str, as_json: bool) -> None:
    """Show a log's settings, schema, ledgers, transactions and consumers.

    Of its newest ledgers it shows those that may lack copies: with bookies that are not registered
    now (away), or were not when the ledger was created (held).
    """
    from spark_bookkeeper.admin.log_documents import describe_log, session_with

    document = describe_log(session_with(uri), log)
    if as_json:
        output.print_json(document)
        return
    ranges, columns = document.pop("ranges"), document.pop("schema")
    transactions, readers = document.pop("transactions"), document.pop("consumers")
    opened, settings = document.pop("open_ledger"), document.pop("settings")
    short, retention = document.pop("under_replicated"), document.pop("retention")
    fields = {**document, **settings, "retention": retention_line(retention)}
    output.print_fields(output.printable_fields(fields))
    output.print_documents({"column": "column", "type": "type"}, columns)
    places = {"ledger": "ledger_id", "first entry": "first_entry", "last entry": "last_entry"}
    sizes = {"first row": "first_row", "rows": "rows", "bytes": "size_bytes"}
    output.print_documents({**places, **sizes, "committed": "commit_ms"}, ranges)
    if opened:
        click.echo(
            f"ledger {opened['ledger_id']} is open from row {opened['first_row']} on, since "
            f"{output.printable_time(opened['opened_ms'])}"
        )
    if short:
        places = {"ledger that may lack copies": "ledger_id", "away": "away", "held": "held"}
        output.print_documents(places, short)
    if transactions:
        output.print_table(("transaction", "last version"), transactions.items())
    if readers:
        output.print_documents(COLUMNS, readers)


@logs.command()
@click.argument("log")
@options.row_option("--first-row", default="earliest")
@options.row_option("--end-row", default="latest", help="The first row left out, as --first-row.")
@click.option("--limit", type=click.IntRange(min=0), help="Print at most this many rows.")
@options.password_option
@options.uri_option
@options.debug_option
def read(log: str, *, uri: str, first_row: int | str, end_row: int | str, **wanted: Any) -> None:
    """Print rows as JSON, one per line, in the log's order."""
    from spark_bookkeeper.cli.logs.rows import LogTable

    table = LogTable(uri, log, wanted["password"])
    for row in islice(table.rows(first_row, end_row), wanted["limit"]):
        click.echo(row)


@logs.command()
@click.argument("log")
@length_prefixed_option
@click.option("--no-create", is_flag=True, help="Fail if there is no such log.")
@options.password_option
@options.cluster_options
def append(
    log: str, *, uri: str, as_json: bool, length_prefixed: bool, no_create: bool, password: bytes
) -> None:
    """Append standard input to a log of plain values, a row per line.

    Fences any other writer of the log, and creates the log if there is none.
    """
    waiting: deque[AddFuture[Position]] = deque()
    count, last = 0, None
    with options.open_client(uri) as client:
        opened = client.open_log(log) if no_create else _open_or_create(client, log)
        with opened.writer(password=password) as writer:
            for record in records_of_stdin(length_prefixed=length_prefixed):
                waiting.append(writer.append_async(record))
                count += 1
                while waiting and waiting[0].done():
                    last = waiting.popleft().result()
            for future in waiting:
                last = future.result()
    next_row = None if last is None else last.row + 1
    line = f"appended {count} rows to {log}" + (f"; next row {next_row}" if last else "")
    output.print_result({"log": log, "rows": count, "next_row": next_row}, line, as_json=as_json)


@logs.command()
@click.argument("log")
@options.row_option("--from", "start", default="latest")
@click.option("--timeout", type=float, help="End when no row arrives for this many seconds.")
@click.option("--limit", type=click.IntRange(min=0), help="Print at most this many rows.")
@raw_option
@options.password_option
@options.cluster_options
def tail(log: str, *, uri: str, as_json: bool, raw: bool, start: int | str, **wanted: Any) -> None:
    """Print rows as they are confirmed, until Ctrl-C.

    A row of a log of plain values is printed as its value, with --json as a document that names the
    row too. A row of any other log is printed as a JSON document of its columns.
    """
    with options.open_client(uri) as client:
        opened = client.open_log(log)
        if opened.settings.payload_format != RAW:
            _tail_table(uri, log, start, wanted)
            return
        timeout, password = wanted["timeout"], wanted["password"]
        with opened.tail(start, timeout=timeout, password=password) as reader:
            for position, entry in islice(reader, wanted["limit"]):
                row = asdict(position)
                print_record(entry.payload, name="value", place=row, as_json=as_json, raw=raw)
                sys.stdout.flush()


@logs.command()
@click.argument("log")
@options.cluster_options
def recover(log: str, uri: str, as_json: bool) -> None:
    """Take a log over from its writer and close its last ledger, so that Spark may append."""
    with options.open_client(uri) as client:
        opened = client.open_log(log)
        opened.recover()
        rows = opened.row_count
    line = f"{log} has no writer; {rows} rows"
    output.print_result({"log": log, "rows": rows}, line, as_json=as_json)


@logs.command()
@click.argument("log")
@options.yes_option
@options.uri_option
@options.debug_option
def delete(log: str, is_sure: bool, uri: str) -> None:
    """Delete a log with all its ledgers for ever; its writer is fenced."""
    options.confirm(f"Delete log {log} and all its rows?", is_sure)
    with options.open_client(uri) as client:
        client.delete_log(log)
    click.echo(f"deleted log {log}")


def _tail_table(uri: str, log: str, start: int | str, wanted: dict[str, Any]) -> None:
    from spark_bookkeeper.cli.logs.rows import LogTable

    table = LogTable(uri, log, wanted["password"])
    for row in islice(table.tail(start, wanted["timeout"]), wanted["limit"]):
        click.echo(row)
        sys.stdout.flush()


def _open_or_create(client: BookKeeper, log: str) -> Log:
    from spark_bookkeeper.log.errors import LogExistsError, NoSuchLogError

    try:
        return client.open_log(log)
    except NoSuchLogError:
        with suppress(LogExistsError):  # another process created it meanwhile, which is as good
            return client.create_log(log)
        return client.open_log(log)
