"""``bookkeeper cookies``: which bookies ever belonged to the cluster, and on which directories."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from bookkeeper_metadata.cookies import RecordedIdentity
from bookkeeper_metadata.errors import BookieInUseError, MetadataCorruptError
from spark_bookkeeper.cli.metadata import run_on_metadata
from spark_bookkeeper.cli.options import cluster_options, confirm, yes_option
from spark_bookkeeper.cli.output import print_fields, print_json, print_list, print_result

if TYPE_CHECKING:
    from bookkeeper_metadata.cookies import CookieStore

T = TypeVar("T")
COLUMNS = {
    "bookie": "bookie_id",
    "starts": "starts",
    "journal directories": "journal_directories",
    "ledger directories": "ledger_directories",
}
"""Of the table of cookies."""


@click.group()
def cookies() -> None:
    """All bookies that ever belonged to the cluster, running or not."""


@cookies.command("list")
@cluster_options
def list_cookies(uri: str, as_json: bool) -> None:
    """List every bookie's cookie."""

    async def read_all(store: CookieStore) -> list[dict[str, Any]]:
        return [await _read(store, bookie_id) for bookie_id in await store.bookie_ids()]

    found = _run(uri, read_all)
    is_damaged = any(each["damage"] for each in found)
    columns = {**COLUMNS, "damage": "damage"} if is_damaged else COLUMNS
    print_list({"cookies": found}, "cookies", columns, as_json=as_json)


@cookies.command()
@click.argument("bookie_id", metavar="BOOKIE")
@cluster_options
def show(bookie_id: str, uri: str, as_json: bool) -> None:
    """Show one bookie's cookie, and how often it has started."""
    from bookkeeper_metadata.errors import NoSuchCookieError

    recorded = _run(uri, lambda store: store.read(bookie_id))
    if not recorded.is_known:
        raise NoSuchCookieError(bookie_id)
    document = _document(bookie_id, recorded)
    if as_json:
        print_json(document)
    else:
        print_fields(
            {
                name.replace("_", " "): ", ".join(value) if isinstance(value, list) else value
                for name, value in document.items()
            }
        )


@cookies.command()
@click.argument("bookie_id", metavar="BOOKIE")
@click.option("--force", is_flag=True, help="Even if ledgers name it: its copies are lost.")
@yes_option
@cluster_options
def delete(bookie_id: str, *, force: bool, is_sure: bool, uri: str, as_json: bool) -> None:
    """Forget a bookie that is gone for good.

    A bookie may then start under its id on empty directories, but never again on the ones it had.
    Ledgers that name it are counted first, and keep it unless --force is given: they are left as
    they are, and the new bookie denies none of their entries, but the copies it had are gone.
    """
    _run(uri, lambda store: store.check_gone(bookie_id))
    if not force and (count := asyncio.run(_count_ledgers_of(uri, bookie_id))):
        raise BookieInUseError(bookie_id, count)
    confirm(f"Forget {bookie_id}? What is on its disks can never be used again.", is_sure)
    _run(uri, lambda store: store.delete(bookie_id))
    print_result({"bookie_id": bookie_id}, f"forgot {bookie_id}", as_json=as_json)


@cookies.command()
@click.argument("bookie_id", metavar="BOOKIE")
@yes_option
@cluster_options
def accept(bookie_id: str, *, is_sure: bool, uri: str, as_json: bool) -> None:
    """Trust metadata that a bookie found older than its disks.

    A bookie that has started more often than the metadata knows runs on a restored copy of it.
    Ledgers created since that copy was made are unknown to it, and their entries would be garbage.
    Accept only when nothing of them is wanted any more.
    """
    confirm(f"Trust this metadata, if it is older than the disks of {bookie_id}?", is_sure)
    has_changed = _run(uri, lambda store: store.accept_metadata(bookie_id))
    line = f"accepted for {bookie_id}" if has_changed else f"nothing to accept for {bookie_id}"
    print_result({"bookie_id": bookie_id, "accepted": has_changed}, line, as_json=as_json)


def _run(uri: str, act: Callable[[CookieStore], Awaitable[T]]) -> T:
    """Do one thing with the cluster's cookies."""
    from bookkeeper_metadata.cookies import CookieStore

    return run_on_metadata(uri, lambda store, root: act(CookieStore(store, root)))


async def _count_ledgers_of(uri: str, bookie_id: str) -> int:
    """In how many ledgers' metadata the bookie is named."""
    from spark_bookkeeper import aio
    from spark_bookkeeper.replication.checking import find_ledgers_of

    async with aio.BookKeeper(uri) as client:
        return len(await find_ledgers_of((await client.connect()).cluster, bookie_id))


async def _read(store: CookieStore, bookie_id: str) -> dict[str, Any]:
    """What is recorded of a bookie; a node that is not understood must not hide the others."""
    try:
        return {**_document(bookie_id, await store.read(bookie_id)), "damage": None}
    except (MetadataCorruptError, ValueError) as error:
        return {**_document(bookie_id, RecordedIdentity()), "starts": None, "damage": str(error)}


def _document(bookie_id: str, recorded: RecordedIdentity) -> dict[str, Any]:
    cookie, counter = recorded.cookie, recorded.counter
    return {
        "bookie_id": bookie_id,
        "journal_directories": list(cookie.journal_directories) if cookie is not None else [],
        "ledger_directories": list(cookie.ledger_directories) if cookie is not None else [],
        "instance_id": cookie.instance_id if cookie is not None else None,
        "starts": counter.starts if counter is not None else 0,
        "collections": counter.collections if counter is not None else 0,
        "is_metadata_older": counter is not None and counter.is_metadata_older,
    }
