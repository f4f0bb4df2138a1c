"""``bookkeeper ledgers``: an operator's work on ledgers.

A ledger has one writer from its creation to its close, so ``create`` makes an empty closed ledger,
and ``append`` writes standard input to one it creates itself.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from spark_bookkeeper.cli import options, output
from spark_bookkeeper.cli.ledgers.recover import recover
from spark_bookkeeper.cli.ledgers.verify import verify
from spark_bookkeeper.cli.records import (
    length_prefixed_option,
    print_record,
    raw_option,
    records_of_stdin,
)

if TYPE_CHECKING:
    from spark_bookkeeper import BookKeeper, Entry, ReadHandle

APPEND_BATCH_BYTES_MAX = 4 * 1024 * 1024
APPEND_BATCH_ENTRIES_MAX = 1_000
"""``append`` sends standard input in batches up to these bounds, one acknowledged before the next."""


@click.group()
def ledgers() -> None:
    """Ledgers: list, show, create, append, read, tail, recover, verify, delete."""


ledgers.add_command(recover)
ledgers.add_command(verify)


def creation_options(command: Any) -> Any:
    """How a new ledger is replicated."""
    for option in (
        click.option("--ledger-id", type=int, help="Use this id.  [default: the next free one]"),
        click.option("--ack-quorum", default=2, show_default=True, help="Acks per entry."),
        click.option("--write-quorum", default=3, show_default=True, help="Copies per entry."),
        click.option("--ensemble-size", default=3, show_default=True, help="Bookies per fragment."),
        click.option(
            "--digest-type",
            type=click.Choice(["CRC32C", "CRC32", "HMAC", "DUMMY"], case_sensitive=False),
            default="CRC32C",
            show_default=True,
        ),
    ):
        command = option(command)
    return command


@ledgers.command("list")
@options.cluster_options
def list_ledgers(uri: str, as_json: bool) -> None:
    """List every ledger with its state, and which of its bookies are away, or were at its creation."""
    from bookkeeper_metadata.errors import NoSuchLedgerError
    from spark_bookkeeper.admin.ledgers import summarize_ledger

    found = []
    with options.open_client(uri) as client:
        registered = _registered(client)
        for ledger_id in client.list_ledgers():
            try:
                metadata = client.ledger_metadata(ledger_id)
            except NoSuchLedgerError:
                continue  # deleted since it was listed
            found.append(summarize_ledger(ledger_id, metadata, registered))
    columns = {"ledger": "ledger_id", "state": "state", "last entry": "last_entry"}
    columns |= {"bytes": "length", "E/WQ/AQ": "quorums", "fragments": "fragments"}
    columns |= {"away": "away", "held": "held"}
    output.print_list({"ledgers": found}, "ledgers", columns, as_json=as_json)


@ledgers.command()
@click.argument("ledger_id", type=int)
@options.cluster_options
def show(ledger_id: int, uri: str, as_json: bool) -> None:
    """Show a ledger's metadata, and where it may be under-replicated.

    Away: bookies that should hold entries and are not registered now. Held: bookies that were away
    when the ledger was created. Which copies are missing `verify` tells.
    """
    from spark_bookkeeper.admin.ledgers import describe_ledger

    with options.open_client(uri) as client:
        metadata, registered = client.ledger_metadata(ledger_id), _registered(client)
    document = describe_ledger(ledger_id, metadata, registered)
    if as_json:
        output.print_json(document)
        return
    fragments, custom = document.pop("fragments"), document.pop("custom_metadata")
    output.print_fields(output.printable_fields(document))
    for key, value in custom.items():
        click.echo(f"custom {key} = {value}")
    places = {"first entry": "first_entry", "ensemble": "ensemble", "away": "away"}
    output.print_documents(places, fragments)


@ledgers.command()
@creation_options
@options.password_option
@options.cluster_options
def create(uri: str, as_json: bool, **settings: Any) -> None:
    """Create an empty, closed ledger and print its id."""
    with options.open_client(uri) as client, client.create_ledger(**settings) as writer:
        ledger_id = writer.ledger_id
    output.print_result({"ledger_id": ledger_id, "entries": 0}, ledger_id, as_json=as_json)


@ledgers.command()
@length_prefixed_option
@creation_options
@options.password_option
@options.cluster_options
def append(uri: str, as_json: bool, length_prefixed: bool, **settings: Any) -> None:
    """Write standard input to a new ledger, an entry per line; close it and print its id."""
    count = 0
    with options.open_client(uri) as client, client.create_ledger(**settings) as writer:
        for batch in _batches(records_of_stdin(length_prefixed=length_prefixed)):
            writer.append_many(batch)
            count += len(batch)
        ledger_id = writer.ledger_id
    output.print_result({"ledger_id": ledger_id, "entries": count}, ledger_id, as_json=as_json)


@ledgers.command()
@click.argument("ledger_id", type=int)
@click.option("--first", default=0, show_default=True, help="First entry.")
@click.option("--last", type=int, help="Last entry.  [default: the last add confirmed]")
@click.option(
    "--recover", is_flag=True, help="Take an open ledger over: fence its writer, close it."
)
@raw_option
@options.password_option
@options.cluster_options
def read(
    ledger_id: int, *, uri: str, as_json: bool, raw: bool, recover: bool, **wanted: Any
) -> None:
    """Print entries, one per line; with --json one document per line."""
    with _open_ledger(uri, ledger_id, wanted["password"], recovery=recover) as reader:
        first = wanted["first"]
        last = reader.last_add_confirmed if wanted["last"] is None else wanted["last"]
        for entry in reader.read(first, last) if first <= last else ():
            _print_entry(entry, as_json=as_json, raw=raw)
    sys.stdout.flush()


@ledgers.command()
@click.argument("ledger_id", type=int)
@click.option("--from", "first", type=int, default=0, show_default=True, help="First entry.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="End when no entry arrives for this long.  [default: never]",
)
@raw_option
@options.password_option
@options.cluster_options
def tail(ledger_id: int, *, uri: str, as_json: bool, raw: bool, **wanted: Any) -> None:
    """Print entries as they are confirmed, until the ledger is closed; Ctrl-C ends it too."""
    with _open_ledger(uri, ledger_id, wanted["password"]) as reader:
        for entry in reader.tail(wanted["first"], timeout=wanted["timeout"]):
            _print_entry(entry, as_json=as_json, raw=raw)
            # At once: whoever reads this through a pipe waits for just this entry.
            sys.stdout.flush()


@ledgers.command()
@click.argument("ledger_id", type=int)
@click.option(
    "--force", is_flag=True, help="Fence the writer of an open ledger, do not recover it."
)
@click.option(
    "--unfenced",
    is_flag=True,
    help="With --force: do not even fence it, where its bookies are gone for good or lost their "
    "disks. What a writer that is still alive gets acknowledged is lost.",
)
@options.yes_option
@options.uri_option
@options.debug_option
def delete(ledger_id: int, force: bool, unfenced: bool, is_sure: bool, uri: str) -> None:
    """Delete a ledger for ever; an open one is recovered first."""
    options.confirm(f"Delete ledger {ledger_id} and all its entries?", is_sure)
    with options.open_client(uri) as client:
        client.delete_ledger(ledger_id, force=force, unfenced=unfenced)
    click.echo(f"deleted ledger {ledger_id}")


@contextmanager
def _open_ledger(
    uri: str, ledger_id: int, password: bytes, *, recovery: bool = False
) -> Iterator[ReadHandle]:
    with options.open_client(uri) as client:
        yield client.open_ledger(ledger_id, password=password, recovery=recovery)


def _registered(client: BookKeeper) -> frozenset[str]:
    """Ids of the bookies that serve what they have."""
    return frozenset(bookie.bookie_id for bookie in client.bookies())


def _print_entry(entry: Entry, *, as_json: bool, raw: bool) -> None:
    place = {"entry_id": entry.entry_id}
    print_record(entry.payload, name="payload", place=place, as_json=as_json, raw=raw)


def _batches(records: Iterator[bytes]) -> Iterator[list[bytes]]:
    batch: list[bytes] = []
    size_bytes = 0
    for record in records:
        batch.append(record)
        size_bytes += len(record)
        if size_bytes >= APPEND_BATCH_BYTES_MAX or len(batch) >= APPEND_BATCH_ENTRIES_MAX:
            yield batch
            batch, size_bytes = [], 0
    if batch:
        yield batch
