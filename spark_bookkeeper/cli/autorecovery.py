"""``bookkeeper autorecovery``: the daemon that heals, and its switch; ``underreplicated``: what it has to do."""

from __future__ import annotations

import asyncio
import logging
import signal
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import click

from spark_bookkeeper.cli.metadata import run_on_metadata
from spark_bookkeeper.cli.options import cluster_options, debug_option, optional_uri_option
from spark_bookkeeper.cli.output import (
    print_fields,
    print_json,
    print_list,
    print_result,
    printable_fields,
)
from spark_bookkeeper.cli.values import any_duration, size

if TYPE_CHECKING:
    from bookkeeper_metadata.foundation.http_server import HttpServer
    from bookkeeper_metadata.store.interface import MetadataStore
    from bookkeeper_metadata.underreplication import Underreplication
    from spark_bookkeeper.replication.measures import ReplicationMeasures

COLUMNS = {
    "ledger": "ledger_id",
    "copies missing on": "bookies",
    "marked": "created_ms",
    "": "state",
}
"""Of the table of marked ledgers."""


@click.group(invoke_without_command=True)
@click.option(
    "--lost-bookie-delay",
    "lost_bookie_delay_ms",
    type=any_duration,
    metavar="DURATION",
    default="0s",
    show_default=True,
    help="Wait so long for a single bookie that is lost, which may only be restarted.",
)
@click.option(
    "--open-ledger-grace",
    "open_ledger_grace_ms",
    type=any_duration,
    metavar="DURATION",
    default="30s",
    show_default=True,
    help="Leave a writer so long to replace a bookie that is lost, before its ledger is taken from it.",
)
@click.option(
    "--bytes-per-second",
    type=size,
    default="32m",
    show_default=True,
    help="Copy no faster, to leave writers and readers their share.",
)
@click.option(
    "--bookie", "own", help="Id of the bookie beside this process: it takes copies first."
)
@click.option(
    "--http-port",
    type=click.IntRange(0, 65535),
    default=0,
    metavar="PORT",
    help="Show /metrics and /healthz on this TCP port of --http-host. Default: none is opened.",
)
@click.option("--http-host", default="127.0.0.1", show_default=True, metavar="HOST")
@click.option("--insecure", is_flag=True, help="Allow an HTTP host beyond loopback, without TLS.")
@optional_uri_option
@debug_option
@click.pass_context
def autorecovery(
    context: click.Context,
    /,
    uri: str | None,
    own: str | None,
    *,
    http_port: int,
    http_host: str,
    insecure: bool,
    **numbers: Any,
) -> None:
    """Copy again what lost bookies held, until SIGTERM or Ctrl-C.

    Run one or more: one of them is the auditor, which marks the ledgers of bookies that are lost, and all of
    them mend what is marked.
    """
    if context.invoked_subcommand is not None:
        return
    if uri is None:
        # Not required by click: a subcommand has the option, too.
        raise click.UsageError("Missing option '--metadata-service-uri'.")
    from bookie_server.settings import is_loopback
    from spark_bookkeeper.replication.settings import ReplicationSettings

    if not insecure and not is_loopback(http_host):
        raise click.UsageError(f"a host beyond loopback has no TLS; say --insecure; {http_host=}")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    address = (http_host, http_port) if http_port else None
    asyncio.run(_run(uri, ReplicationSettings(**numbers), own, address))


async def _run(uri: str, settings: Any, own: str | None, address: tuple[str, int] | None) -> None:
    from spark_bookkeeper import aio
    from spark_bookkeeper.replication.auto_recovery import name_of_process, run_auto_recovery
    from spark_bookkeeper.replication.measures import ReplicationMeasures

    holder, measures = own or name_of_process(), ReplicationMeasures()
    async with AsyncExitStack() as stack:
        if address is not None:
            # Before the metadata service is asked: a process that waits for it lives, too.
            stack.callback(_show(address, measures).close)
        client = await stack.enter_async_context(aio.BookKeeper(uri))
        cluster = (await client.connect()).cluster
        running = asyncio.ensure_future(
            run_auto_recovery(cluster, settings, holder=holder, own=own, measures=measures)
        )
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, running.cancel)
        click.echo("auto-recovery runs; Ctrl-C stops it.", err=True)
        await asyncio.wait([running])
        if not running.cancelled():
            running.result()


def _show(address: tuple[str, int], measures: ReplicationMeasures) -> HttpServer:
    """Open the HTTP port; call it on the event loop that is to be watched."""
    from bookkeeper_metadata.foundation.http_server import (
        HttpServer,
        health_route,
        metrics_route,
        registry_of_process,
    )

    registry = registry_of_process()
    registry.register(measures)
    loop = asyncio.get_running_loop()
    routes = {
        "/healthz": health_route(loop, lambda: {"is_auditor": measures.is_auditor}),
        "/metrics": metrics_route(registry),
    }
    return HttpServer(*address, routes)


@autorecovery.command()
@cluster_options
def enable(uri: str, as_json: bool) -> None:
    """Let auto-recovery go on."""
    _switch(uri, is_enabled=True, as_json=as_json)


@autorecovery.command()
@cluster_options
def disable(uri: str, as_json: bool) -> None:
    """Have auto-recovery pause, in the whole cluster: nothing is marked, nothing is mended."""
    _switch(uri, is_enabled=False, as_json=as_json)


@autorecovery.command()
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
