"""Commands about auto-recovery: its switch and its state; ``underreplicated``: what it has to do."""

from __future__ import annotations

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
    """Have auto-recovery pause, in the whole cluster: nothing is marked or mended. Logs are still collected."""
    _switch(uri, is_enabled=False, as_json=as_json)


@click.command()
@cluster_options
def status(uri: str, as_json: bool) -> None:
    """Show whether it is enabled, who is the auditor, and how many ledgers wait."""
    from spark_bookkeeper.admin.replication import describe_auto_recovery

    document = run_on_metadata(uri, describe_auto_recovery)
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

    from spark_bookkeeper.admin.replication import describe_marks

    found = run_on_metadata(uri, describe_marks)
    print_list({"underreplicated": found}, "underreplicated", COLUMNS, as_json=as_json)


def _switch(uri: str, *, is_enabled: bool, as_json: bool) -> None:
    from spark_bookkeeper.admin.replication import marks_of

    has_changed = run_on_metadata(
        uri, lambda store, root: marks_of(store, root).set_enabled(is_enabled)
    )
    line = f"auto-recovery is {'enabled' if is_enabled else 'disabled'}"
    line += "" if has_changed else ", as it was"
    print_result({"is_enabled": is_enabled, "changed": has_changed}, line, as_json=as_json)
