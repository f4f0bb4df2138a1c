"""``bookkeeper ledgers recover``: end a ledger, as every recovery does, or with what an operator gives up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from spark_bookkeeper.cli import options, output

if TYPE_CHECKING:
    from bookkeeper_metadata.model import LedgerMetadata
    from spark_bookkeeper import BookKeeper
    from spark_bookkeeper.ledger.protocol.doubt import Doubt


@click.command()
@click.argument("ledger_id", type=int)
@click.option(
    "--accept-loss",
    "accepts_loss",
    is_flag=True,
    help="Where so many of its bookies are in limbo that nobody can tell where it ends: end it before the first entry, behind the last that "
    "is known to be confirmed, that none of them has. What was acknowledged from there on is given up for good. Every bookie of its last "
    "ensemble must answer.",
)
@options.yes_option
@options.password_option
@options.cluster_options
def recover(
    ledger_id: int, *, accepts_loss: bool, is_sure: bool, password: bytes, uri: str, as_json: bool
) -> None:
    """Fence a ledger's writer and close the ledger at its last entry."""
    with options.open_client(uri) as client:
        if accepts_loss:
            metadata, highest_entry = _give_up(client, ledger_id, password, is_sure, as_json)
        else:
            client.open_ledger(ledger_id, password=password, recovery=True).close()
            metadata = client.ledger_metadata(ledger_id)
            highest_entry = metadata.last_entry
    document = {"ledger_id": ledger_id, "last_entry": metadata.last_entry}
    line = f"ledger {ledger_id} is closed; last entry {metadata.last_entry}"
    if highest_entry > metadata.last_entry:
        document["highest_entry_found"] = highest_entry
        line += f"; some bookie has entries up to {highest_entry}, which are given up with what lies before them"
    output.print_result(document, line, as_json=as_json)


def _give_up(
    client: BookKeeper, ledger_id: int, password: bytes, is_sure: bool, as_json: bool
) -> tuple[LedgerMetadata, int]:
    """The closed metadata, and the highest entry that any bookie had."""
    from spark_bookkeeper.ledger.errors import LedgerRecoveryError

    metadata, doubt = client.ledger_metadata(ledger_id), None
    if not metadata.is_closed:
        doubt = client.run(client.ledger_client.doubt_of_ledger(ledger_id))
        if not as_json:
            _print(doubt)
        if why := doubt.objection:
            raise LedgerRecoveryError(ledger_id, why)
        options.confirm(
            f"End ledger {ledger_id} before the first unconfirmed entry that no bookie has, and give up the rest?",
            is_sure,
        )
    closed = client.run(client.ledger_client.recover_with_losses(ledger_id, password=password))
    return closed, closed.last_entry if doubt is None else doubt.last_entry


def _print(doubt: Doubt) -> None:
    rows = [
        (each.bookie_id, each.status.name, "" if each.last_entry < 0 else each.last_entry)
        for each in doubt.holdings
    ]
    output.print_table(("bookie", "says", "highest entry"), rows)
