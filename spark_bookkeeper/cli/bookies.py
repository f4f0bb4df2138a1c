"""``bookkeeper bookies``: who can store entries."""

from __future__ import annotations

from dataclasses import asdict

import click

from spark_bookkeeper.cli.options import cluster_options, open_client
from spark_bookkeeper.cli.output import print_json, print_table


@click.group()
def bookies() -> None:
    """The bookies of a cluster."""


@bookies.command("list")
@cluster_options
def list_bookies(uri: str, as_json: bool) -> None:
    """List the bookies registered now."""
    with open_client(uri) as client:
        found = [asdict(each) for each in client.bookies()]
    if as_json:
        print_json({"bookies": found})
    else:
        print_table(
            ("bookie", "address", "state"),
            (
                (each["bookie_id"], each["address"], "writable" if each["writable"] else "readonly")
                for each in found
            ),
        )
