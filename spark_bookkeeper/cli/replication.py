"""Commands about auto-recovery: its switch and its state; ``underreplicated``: what it has to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from spark_bookkeeper.cli.metadata import run_on_metadata
from spark_bookkeeper.cli.options import cluster_options
from spark_bookkeeper.cli.output import (
    print_fields,
    print_json,
    print_list,
    print_result,
    printable_fields,
)

if TYPE_CHECKING:
    from bookkeeper_metadata.store.interface import MetadataStore
    from bookkeeper_metadata.underreplication import Underreplication

COLUMNS = {
    "ledger": "ledger_id",
    "copies missing on": "bookies",
    "marked": "created_ms",
    "": "state",
}
"""Of the table of marked ledgers."""


@click.command()
@cluster_options
def enable(uri: str, as_json: bool) -> None:
    """Let auto-recovery go on."""
    _switch(uri, is_enabled=True, as_json=as_json)


@click.command()
@cluster_options
def disable(uri: str, as_json: bool) -> None:
    """Have auto-recovery pause, in the whole cluster: nothing is marked, nothing is mended."""
    _switch(uri, is_enabled=False, as_json=as_json)


@click.command()
@cluster_options
def status(uri: str, as_json: bool) -> None:
    """Show whether it is enabled, who is the auditor, and how many ledgers wait."""
    from bookkeeper_metadata.election import elected_auditor

    async def read(store: MetadataStore, root: str) -> dict[str, Any]:
        marks = _marks(store, root)
        return {
            "is_enabled": await marks.is_enabled(),
            "auditor": await elected_auditor(store, root),
            "marked": len([each async for each in marks.list_marked_ledgers()]),
            "being_mended": len(await marks.list_locked_ledgers()),
        }

    document = run_on_metadata(uri, read)
    if as_json:
        print_json(document)
    else:
        print_fields(printable_fields(document))


@click.group()
def underreplicated() -> None:
    """Ledgers that lack copies, as somebody has marked them."""


@underreplicated.command("list")
@cluster_options
def list_marks(uri: str, as_json: bool) -> None:
    """List the marked ledgers: whose copies are missing, since when, and what becomes of it."""

    async def read(store: MetadataStore, root: str) -> list[dict[str, Any]]:
        marks = _marks(store, root)
        locked, found = await marks.list_locked_ledgers(), []
        async for ledger_id in marks.list_marked_ledgers():
            mark = await marks.read(ledger_id)
            if mark is not None:
                found.append(
                    {
                        "ledger_id": ledger_id,
                        "bookies": list(mark.bookie_ids),
                        "created_ms": mark.marked_ms,
                        "state": "being mended" if ledger_id in locked else "waits",
                    }
                )
        return found

    found = run_on_metadata(uri, read)
    print_list({"underreplicated": found}, "underreplicated", COLUMNS, as_json=as_json)


def _switch(uri: str, *, is_enabled: bool, as_json: bool) -> None:
    has_changed = run_on_metadata(
        uri, lambda store, root: _marks(store, root).set_enabled(is_enabled)
    )
    line = f"auto-recovery is {'enabled' if is_enabled else 'disabled'}"
    line += "" if has_changed else ", as it was"
    print_result({"is_enabled": is_enabled, "changed": has_changed}, line, as_json=as_json)


def _marks(store: MetadataStore, root: str) -> Underreplication:
    from random import SystemRandom

    from bookkeeper_metadata.underreplication import Underreplication

    return Underreplication(store, root, random=SystemRandom())
