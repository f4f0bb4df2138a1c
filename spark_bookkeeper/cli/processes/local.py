"""``bookkeeper local``: a whole cluster in the foreground."""

from __future__ import annotations

import logging
import os
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bookie_server.settings import REPLACE_FLAG
from bookkeeper_metadata.environment import METADATA_URI_VARIABLE
from bookkeeper_metadata.foundation.tls.settings import TLS_VARIABLES
from spark_bookkeeper.cli.options import debug_option
from spark_bookkeeper.cli.output import print_json

if TYPE_CHECKING:
    from spark_bookkeeper.local.cluster import LocalCluster

SNIPPET = """\
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
numbers = {{"metadataServiceUri": "{uri}", "log": "numbers"}}
spark.range(1000).write.format("bookkeeper").mode("append").options(**numbers).save()
spark.read.format("bookkeeper").options(**numbers).load().show(5)
"""
"""What to paste into Python: five lines from nothing to rows in a log and back."""


@click.command()
@click.option("--bookies", default=3, show_default=True, help="How many bookies.")
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    help="Keep the data here between runs.  [default: temporary]",
)
@click.option("--port", type=int, help="ZooKeeper's port.  [default: a free one]")
@click.option(
    REPLACE_FLAG,
    "replaced",
    multiple=True,
    metavar="BOOKIE",
    help="The missing directories of this bookie (its id) are lost: take new ones. For one start.",
)
@click.option("--autorecovery", is_flag=True, help="Copy again what lost bookies held.")
@click.option("--json", "as_json", is_flag=True, help="Say what runs as one JSON document.")
@debug_option
def local(
    bookies: int,
    directory: Path | None,
    port: int | None,
    *,
    replaced: tuple[str, ...],
    autorecovery: bool,
    as_json: bool,
) -> None:
    """Run ZooKeeper and bookies on this machine until Ctrl-C; a bookie that dies is started again."""
    from spark_bookkeeper.local.cluster import LocalCluster

    logging.basicConfig(format="%(message)s")  # what dies and is started again
    cluster = LocalCluster(
        bookies,
        directory=directory,
        port=port,
        restart_bookies=True,
        autorecovery=autorecovery,
        replace_lost_directories=replaced,
    )
    ended = threading.Event()
    # Both mean the same here: drain, stop all, exit 0. While draining, a second one exits at once
    # (the guard then kills what is left).
    received: list[int] = []

    def end(number: int, _frame: object) -> None:
        if received:
            os._exit(1)
        received.append(number)
        ended.set()

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    click.echo(f"starting ZooKeeper and {bookies} bookies ...", err=True)
    with cluster:
        uri = cluster.metadata_service_uri
        if as_json:
            members = [
                {
                    "bookie_id": each.bookie_id,
                    "pid": each.pid,
                    "directory": str(each.directory),
                    "http_address": each.http_address,
                }
                for each in cluster.bookies
            ]
            healer = cluster.auto_recovery
            print_json(
                {
                    "metadata_service_uri": uri,
                    "bookies": members,
                    "auto_recovery_http_address": healer.http_address if healer else None,
                }
            )
        else:
            _show(cluster)
        # Waiting with a timeout lets signal handlers run on every platform.
        while not ended.wait(1.0):
            pass
        click.echo("stopping ...", err=True)


def _show(cluster: LocalCluster) -> None:
    """Where it is, and what to paste."""
    uri = cluster.metadata_service_uri
    click.echo(f"metadata service URI: {uri}")
    click.echo(f"bookies: {', '.join(each.bookie_id for each in cluster.bookies)}")
    click.echo(f"data: {cluster.directory}")
    shown = [each for each in (*cluster.bookies, cluster.auto_recovery) if each is not None]
    click.echo("metrics:" + "".join(f" {each.http_address}/metrics" for each in shown))
    click.echo(f"\nexport {METADATA_URI_VARIABLE}='{uri}'\n\n{SNIPPET.format(uri=uri)}")
    if given := [name for name in TLS_VARIABLES.values() if os.environ.get(name)]:
        # As of a shell that is prepared for another cluster.
        click.echo(
            f"It speaks in clear, which clients of a shell refuse that has {', '.join(given)}."
        )
    click.echo("Ctrl-C stops it.")
