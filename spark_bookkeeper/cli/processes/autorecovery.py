"""``bookkeeper autorecovery``: the daemon that heals, and collects logs."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import click

from spark_bookkeeper.cli.options import debug_option
from spark_bookkeeper.cli.processes.settings import config_option, setting_options
from spark_bookkeeper.cli.replication import disable, enable, status
from spark_bookkeeper.replication.settings import (
    AutoRecoverySettings,
    auto_recovery_settings_table,
)

if TYPE_CHECKING:
    from bookkeeper_metadata.foundation.http_server import HttpServer
    from spark_bookkeeper.log.housekeeping import HousekeepingMeasures
    from spark_bookkeeper.replication.measures import ReplicationMeasures


_END_TIMEOUT_S = 5.0


@click.group(invoke_without_command=True)
@config_option
@setting_options(auto_recovery_settings_table())
@click.option("--while-stdin-is-open", is_flag=True, hidden=True)
@debug_option
@click.pass_context
def autorecovery(
    context: click.Context, /, config: str | None, *, while_stdin_is_open: bool, **flags: Any
) -> None:
    """Copy again what lost bookies held, until SIGTERM or Ctrl-C; a flag beats the environment beats the file.

    Run one or more: one of them is the auditor, which marks the ledgers of bookies that are lost and collects
    the logs, and all of them mend what is marked.
    """
    if context.invoked_subcommand is not None:
        return
    from bookie_server.logs import set_up_logging

    if while_stdin_is_open:
        threading.Thread(target=_end_with_stdin, name="stdin", daemon=True).start()
    settings = load_auto_recovery_settings(config, flags)
    set_up_logging(settings.log_level, settings.log_format)
    asyncio.run(_run(settings))


for _command in (enable, disable, status):
    autorecovery.add_command(_command)


def load_auto_recovery_settings(config: str | None, flags: dict[str, Any]) -> AutoRecoverySettings:
    """From file, environment and flags.

    Raises:
        ValueError: all that is wrong with them.
        OSError: the file cannot be read.
    """
    from bookie_server.settings import load_settings

    table = auto_recovery_settings_table()
    return load_settings(table, config_path=config, environment=os.environ, flags=flags)


async def _run(settings: AutoRecoverySettings) -> None:
    from bookkeeper_metadata.foundation.tasks import run_together
    from spark_bookkeeper import aio
    from spark_bookkeeper.log.housekeeping import HousekeepingMeasures, keep_house
    from spark_bookkeeper.log.layer import LogLayer
    from spark_bookkeeper.replication.auto_recovery import name_of_process, run_auto_recovery
    from spark_bookkeeper.replication.measures import ReplicationMeasures
    from spark_bookkeeper.settings import ClientSettings

    own = settings.bookie or None
    ways: dict[str, Any] = settings.of_zookeeper()
    client_settings = ClientSettings(connection=settings.connection, **ways)
    measures, house = ReplicationMeasures(), HousekeepingMeasures()
    async with AsyncExitStack() as stack:
        if settings.http_port:
            # Before the metadata service is asked: a process that waits for it lives, too.
            stack.callback(_show(settings, measures, house).close)
        client = await stack.enter_async_context(
            aio.BookKeeper(settings.metadata_service_uri, settings=client_settings)
        )
        ledgers = await client.connect()
        cluster = ledgers.cluster
        holder = own or name_of_process()
        running = asyncio.create_task(
            run_together(
                auto_recovery=run_auto_recovery(
                    cluster, settings, holder=holder, own=own, measures=measures
                ),
                housekeeping=keep_house(
                    LogLayer.over(ledgers),
                    settings.logs_gc_interval_ms,
                    is_chosen=lambda: measures.is_auditor,
                    measures=house,
                ),
            )
        )
        _end_on_signals(running)
        click.echo("auto-recovery runs; Ctrl-C stops it.", err=True)
        await asyncio.wait([running])
        if not running.cancelled():
            running.result()


def _end_on_signals(running: asyncio.Future[Any]) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, running.cancel)


def _end_with_stdin() -> None:
    """End this process when whoever started it has ended, however that was, and whatever this one waits for."""
    sys.stdin.buffer.read()  # nothing is ever written there
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(_END_TIMEOUT_S)
    os._exit(1)


def _show(
    settings: AutoRecoverySettings, measures: ReplicationMeasures, house: HousekeepingMeasures
) -> HttpServer:
    """Open the HTTP port; call it on the event loop that is to be watched."""
    from bookkeeper_metadata.foundation.http_server import (
        HttpServer,
        health_route,
        metrics_route,
        registry_of_process,
    )
    from bookkeeper_metadata.foundation.tls.contexts import tls_of
    from spark_bookkeeper.replication.exposition import AutoRecoveryExposition

    registry = registry_of_process()
    registry.register(AutoRecoveryExposition(measures, house))
    loop = asyncio.get_running_loop()
    routes = {
        "/healthz": health_route(loop, lambda: {"is_auditor": measures.is_auditor}),
        "/metrics": metrics_route(registry),
    }
    tls = tls_of(settings.tls_of_http)
    return HttpServer(settings.http_host, settings.http_port, routes, tls=tls)
