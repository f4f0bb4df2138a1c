"""``bookkeeper bookies``: who can store entries, and who is away."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from spark_bookkeeper.cli.options import cluster_options, open_client
from spark_bookkeeper.cli.output import print_list

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
    columns = {"bookie": "bookie_id", "address": "address", "state": "state"}
    print_list({"bookies": found}, "bookies", columns, as_json=as_json)


def _state(bookie: BookieStatus) -> str:
    if bookie.is_away:
        return "away"
    return "writable" if bookie.writable else "readonly"
