"""``bookkeeper bookies``: who can store entries, and who is away."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from spark_bookkeeper.cli.metadata import run_on_metadata
from spark_bookkeeper.cli.migration import decommission, recover
from spark_bookkeeper.cli.options import cluster_options, open_client
from spark_bookkeeper.cli.output import print_list, print_result

if TYPE_CHECKING:
    from spark_bookkeeper.ledger.client import BookieStatus


@click.group()
def bookies() -> None:
    """The bookies of a cluster."""


@bookies.command("list")
@cluster_options
def list_bookies(uri: str, as_json: bool) -> None:
    """List the bookies that ever belonged to the cluster, and whether they take entries now.

    The state is writable, readonly (serves what it has), or away: it has a cookie, and no process is
    registered under its id.
    """
    with open_client(uri) as client:
        known = client.bookies(with_away=True)
    found = [{**asdict(each), "state": _state(each)} for each in known]
    columns = {"bookie": "bookie_id", "address": "address", "state": "state", "by": "readonly_by"}
    print_list({"bookies": found}, "bookies", columns, as_json=as_json)


bookies.add_command(decommission)
bookies.add_command(recover)


def _state(bookie: BookieStatus) -> str:
    if bookie.is_away:
        return "away"
    return "writable" if bookie.writable else "readonly"


@bookies.command()
@click.argument("bookie_id", metavar="BOOKIE")
@cluster_options
def readonly(bookie_id: str, uri: str, as_json: bool) -> None:
    """Let a bookie take no new entries, until it is made writable.

    It goes on serving reads, fences and recoveries, and stays read-only over restarts. Writers go on
    with other bookies.
    """
    from bookkeeper_metadata.readonly import ReadonlyWishes

    run_on_metadata(uri, lambda store, root: ReadonlyWishes(store, root).make(bookie_id))
    _print_wish(bookie_id, f"{bookie_id} is to be read-only", is_readonly=True, as_json=as_json)


@bookies.command()
@click.argument("bookie_id", metavar="BOOKIE")
@cluster_options
def writable(bookie_id: str, uri: str, as_json: bool) -> None:
    """Let a bookie take new entries again, as far as its disks have room."""
    from bookkeeper_metadata.readonly import ReadonlyWishes

    has_changed = run_on_metadata(
        uri, lambda store, root: ReadonlyWishes(store, root).withdraw(bookie_id)
    )
    line = f"{bookie_id} may be writable" if has_changed else f"{bookie_id} was not made read-only"
    _print_wish(bookie_id, line, is_readonly=False, as_json=as_json)


def _print_wish(bookie_id: str, line: str, *, is_readonly: bool, as_json: bool) -> None:
    document = {"bookie_id": bookie_id, "readonly_by_hand": is_readonly}
    print_result(document, line, as_json=as_json)
