"""``bookkeeper bookies``: who can store entries, and who is away."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import click

from spark_bookkeeper.cli.metadata import run_on_metadata
from spark_bookkeeper.cli.migration import decommission, recover
from spark_bookkeeper.cli.options import cluster_options
from spark_bookkeeper.cli.output import print_json, print_result, print_table, printable_size

_COLUMNS = ("bookie", "address", "state", "by", "ledgers", "limbo", "disk")


@click.group()
def bookies() -> None:
    """The bookies of a cluster."""


@bookies.command("list")
@cluster_options
def list_bookies(uri: str, as_json: bool) -> None:
    """List the bookies that ever belonged to the cluster, and whether they take entries now.

    The state is writable, readonly (serves what it has), or away: it has a cookie, and no process is
    registered under its id. The disk is that of its first ledger directory.
    """
    from spark_bookkeeper import aio
    from spark_bookkeeper.admin.bookies import describe_bookies

    async def describe() -> list[dict[str, Any]]:
        async with aio.BookKeeper(uri) as client:
            return await describe_bookies(await client.connect())

    found = asyncio.run(describe())
    if as_json:
        print_json({"bookies": found})
    else:
        print_table(_COLUMNS, [_row(each) for each in found])


bookies.add_command(decommission)
bookies.add_command(recover)


def _row(bookie: Mapping[str, Any]) -> list[Any]:
    """For people, as :data:`_COLUMNS` names it."""
    disk = "" if bookie["state"] == "away" else "does not answer"
    if bookie["answers"] and bookie["disk_total_bytes"]:
        total, free = bookie["disk_total_bytes"], bookie["disk_free_bytes"]
        used_percent = 100 * (total - free) // total
        disk = f"{used_percent} % of {printable_size(total)}, {printable_size(free)} free"
    keys = ("bookie_id", "address", "state", "readonly_by", "ledger_count", "limbo_count")
    return [*(bookie[key] for key in keys), disk]


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
