"""``bookkeeper ledgers verify``: the command; what it finds out is in :mod:`.verification`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import click

from spark_bookkeeper.cli import options, output

if TYPE_CHECKING:
    from spark_bookkeeper.cli.ledgers.verification import Verification

EXIT_DIFFERENT = 1
EXIT_UNDER_REPLICATED = 3
"""Nothing is wrong but that copies are missing; not 2, which is wrong use."""


@click.command()
@click.argument("ledger_ids", metavar="[LEDGER_ID]...", type=int, nargs=-1)
@click.option("--log", "logs", multiple=True, metavar="LOG", help="All ledgers that the log names.")
@click.option("--all", "is_all", is_flag=True, help="All ledgers of the cluster.")
@click.option(
    "--repair",
    "is_repair",
    is_flag=True,
    help="Give bookies the copies that they lack or cannot read, and verify those ledgers again. What "
    "differs is left alone: none of the copies is known to be the right one.",
)
@options.password_option
@options.cluster_options
@click.pass_context
def verify(
    context: click.Context,
    /,
    ledger_ids: tuple[int, ...],
    uri: str,
    as_json: bool,
    is_repair: bool,
    **wanted: Any,
) -> None:
    """Read every replica of every entry and compare them.

    Exit code 1: replicas differ, too few are there, or one could not be asked. 3: nothing of that,
    but copies are missing (under-replicated), such as those of a bookie that was away.
    """
    if wanted["is_all"] == bool(ledger_ids or wanted["logs"]):
        raise click.UsageError("name ledgers by their ids or by --log, or give --all alone")
    found = asyncio.run(_verify(uri, ledger_ids, wanted, is_repair=is_repair, is_quiet=as_json))
    if as_json:
        documents = [each.as_document() for each in found]
        has_passed = all(each.has_passed for each in found)
        output.print_json(
            documents[0]
            if _is_one(ledger_ids, wanted)
            else {"passed": has_passed, "ledgers": documents}
        )
    if not all(each.has_passed for each in found):
        context.exit(EXIT_DIFFERENT)
    if any(each.copies_missing for each in found):
        context.exit(EXIT_UNDER_REPLICATED)


async def _verify(
    uri: str,
    ledger_ids: tuple[int, ...],
    wanted: dict[str, Any],
    *,
    is_repair: bool,
    is_quiet: bool,
) -> list[Verification]:
    from spark_bookkeeper import aio
    from spark_bookkeeper.cli.ledgers.repair import repair_ledgers
    from spark_bookkeeper.cli.ledgers.verification import verify_ledgers

    found = []
    async with aio.BookKeeper(uri) as client:
        results = verify_ledgers(client, ledger_ids, **wanted)
        if is_repair:
            results = repair_ledgers(client, results, wanted["password"])
        async for result in results:
            # Of a single ledger it is the command's own error, as everywhere.
            if result.error is not None and _is_one(ledger_ids, wanted):
                raise result.error
            found.append(result)
            # At once: a whole cluster takes its time.
            if not is_quiet:
                _print(result)
    return found


def _is_one(ledger_ids: tuple[int, ...], wanted: dict[str, Any]) -> bool:
    return len(ledger_ids) == 1 and not wanted["logs"]


def _print(result: Verification) -> None:
    document = result.as_document()
    for each in document["defects"]:
        span = f"entries {each['first_entry']} to {each['last_entry']}"
        click.echo(f"{each['bookie_id']}  {each['what']}  {span}")
    for first, last in document["below_ack_quorum"]:
        click.echo(f"too few replicas of entries {first} to {last}")
    for first, last in document["without_copy"]:
        click.echo(f"no good copy of entries {first} to {last}")
    if document["error"] is not None:
        click.echo(document["error"])
    for reason in result.not_repaired:
        click.echo(f"not repaired: {reason}")
    counts = f"{result.entries} entries, {result.replicas_checked} replicas asked for"
    missing = f", {result.copies_missing} missing" if result.copies_missing else ""
    repaired = f", {result.repaired} repaired" if result.repaired else ""
    click.echo(f"ledger {result.ledger_id} {result.outcome}: {counts}{missing}{repaired}")
