"""``bookkeeper bookies decommission`` and ``recover``: what a bookie holds moves to others."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar

import click

from spark_bookkeeper.cli.options import cluster_options
from spark_bookkeeper.cli.output import print_result, printable_duration
from spark_bookkeeper.cli.values import any_duration, size

if TYPE_CHECKING:
    from spark_bookkeeper.ledger.client import LedgerClient
    from spark_bookkeeper.replication.migration import Migrated

Function = TypeVar("Function", bound=Callable[..., Any])
EXIT_LEFT = 1
_SPEAK_S = 2.0
_READ_ONLY_WITHIN_S = 60.0
"""A bookie hears at once that it is to be read-only, if it is there and healthy."""


def _migration_options(command: Function) -> Function:
    for option in (
        click.option("--dry-run", is_flag=True, help="Say what would be moved, and move nothing."),
        click.option(
            "--bytes-per-second",
            type=size,
            default="32m",
            show_default=True,
            help="Copy no faster, to leave writers and readers their share.",
        ),
        click.option(
            "--open-ledger-grace",
            "open_ledger_grace_ms",
            type=any_duration,
            metavar="DURATION",
            default="30s",
            show_default=True,
            help="Leave a writer so long to go on without the bookie, before its ledger is recovered.",
        ),
        click.option(
            "--to",
            "targets",
            multiple=True,
            metavar="BOOKIE",
            help="Only this bookie may take over; may be given several times.  [default: any]",
        ),
    ):
        command = option(command)
    return cluster_options(command)


@click.command()
@click.argument("bookie_id", metavar="BOOKIE")
@_migration_options
@click.pass_context
def decommission(context: click.Context, /, bookie_id: str, **wanted: Any) -> None:
    """Retire a bookie: make it read-only, and move all it holds to other bookies while it serves on.

    Every copy is made before the metadata names it, so no ledger has fewer copies at any moment. What nobody
    can take over stays, exit code 1. Interrupted, it is run again. When nothing is left, stop the bookie and
    delete its cookie.
    """
    context.exit(_run(bookie_id, is_retired=True, **wanted))


@click.command()
@click.argument("bookie_id", metavar="BOOKIE")
@_migration_options
@click.pass_context
def recover(context: click.Context, /, bookie_id: str, **wanted: Any) -> None:
    """Copy again what a bookie held that will not come back, from the other copies to other bookies.

    `bookkeeper autorecovery` does this by itself. What cannot be copied stays as it is, exit code 1.
    """
    context.exit(_run(bookie_id, is_retired=False, **wanted))


def _run(bookie_id: str, *, uri: str, as_json: bool, **wanted: Any) -> int:
    migrated = asyncio.run(_migrate(uri, bookie_id, **wanted))
    document = asdict(migrated)
    is_dry = wanted["dry_run"]
    if not as_json:
        for ledger_id, why in list(migrated.left.items())[:20]:
            click.echo(f"ledger {ledger_id}: {why}", err=True)
    print_result(document, _summary(migrated, is_dry, wanted["is_retired"]), as_json=as_json)
    return EXIT_LEFT if migrated.left and not is_dry else 0


async def _migrate(
    uri: str,
    bookie_id: str,
    *,
    is_retired: bool,
    dry_run: bool,
    targets: tuple[str, ...],
    bytes_per_second: int,
    open_ledger_grace_ms: int,
) -> Migrated:
    from spark_bookkeeper import aio
    from spark_bookkeeper.replication.auto_recovery import name_of_process
    from spark_bookkeeper.replication.checking import find_ledgers_of
    from spark_bookkeeper.replication.migration import Migrated, Migration

    async with aio.BookKeeper(uri) as opened:
        client = await opened.connect()
        await _check(client, bookie_id, targets, is_retired=is_retired)
        if dry_run:
            return Migrated(
                bookie_id, ledgers=len(await find_ledgers_of(client.cluster, bookie_id))
            )
        if is_retired:
            await _make_readonly(client, bookie_id)
        migration = Migration(
            client.cluster,
            bookie_id,
            holder=name_of_process(),
            targets=targets,
            bytes_per_second=bytes_per_second,
            open_ledger_grace_ms=open_ledger_grace_ms,
            on_progress=_Progress(),
        )
        return await migration.run()


async def _check(
    client: LedgerClient, bookie_id: str, targets: tuple[str, ...], *, is_retired: bool
) -> None:
    known = {each.bookie_id: each for each in await client.bookies(with_away=True)}
    for named in (bookie_id, *targets):
        if named not in known:
            raise click.UsageError(f"no bookie {named} belongs to the cluster")
    if bookie_id in targets:
        raise click.UsageError(f"--to {bookie_id} is the bookie that is to be moved away from")
    if not is_retired and not known[bookie_id].is_away:
        raise click.UsageError(
            f"{bookie_id} is there; to retire it: bookkeeper bookies decommission"
        )


async def _make_readonly(client: LedgerClient, bookie_id: str) -> None:
    """Have the bookie take no new ledgers, and wait until it is listed so; one that is away takes none."""
    from bookkeeper_metadata.endpoints import GRPC
    from bookkeeper_metadata.readonly import ReadonlyWishes

    cluster = client.cluster
    registered = (await cluster.registry.writable()).get(bookie_id)
    if registered is not None and registered.endpoint(GRPC) is None:
        click.echo(
            f"{bookie_id} is one of Apache's, which nobody but its own HTTP server can make read-only "
            "(PUT /api/v1/bookie/state/readonly): until then new ledgers may name it, and are moved as well",
            err=True,
        )
        return
    await ReadonlyWishes(cluster.store, cluster.root).make(bookie_id)
    deadline_s = time.monotonic() + _READ_ONLY_WITHIN_S
    while bookie_id in await cluster.registry.writable():
        if time.monotonic() > deadline_s:
            raise click.ClickException(
                f"{bookie_id} has not become read-only within {_READ_ONLY_WITHIN_S:.0f} s; look at its log"
            )
        await asyncio.sleep(0.1)


def _summary(migrated: Migrated, is_dry: bool, is_retired: bool) -> str:
    bookie_id = migrated.bookie_id
    if is_dry:
        return f"{migrated.ledgers:,} ledgers name {bookie_id}"
    moved = f"{migrated.moved:,} of {migrated.ledgers:,} ledgers moved from {bookie_id}"
    copied = f"{moved}, {migrated.copied_bytes / (1 << 20):,.1f} MiB copied"
    if migrated.left:
        return f"{copied}; {len(migrated.left):,} still name it"
    then = "stop it, then" if is_retired else "then"
    return f"{copied}; nothing is left on it: {then} `bookkeeper cookies delete {bookie_id}`"


class _Progress:
    """Says now and then, on a terminal, how far it is and when it will be over."""

    def __init__(self) -> None:
        self._begun_s = self._spoke_s = time.monotonic()
        self._is_watched = sys.stderr.isatty()

    def __call__(self, migrated: Migrated) -> None:
        now_s = time.monotonic()
        if not self._is_watched or now_s - self._spoke_s < _SPEAK_S:
            return
        self._spoke_s = now_s
        passed_s = now_s - self._begun_s
        rate = migrated.copied_bytes / (1 << 20) / passed_s
        line = f"{migrated.moved:,} of {migrated.ledgers:,} ledgers, {rate:,.1f} MiB/s"
        if migrated.moved:
            left_s = round(passed_s * (migrated.ledgers - migrated.moved) / migrated.moved)
            line += f", about {printable_duration(left_s * 1000)} left"
        click.echo(line, err=True)
