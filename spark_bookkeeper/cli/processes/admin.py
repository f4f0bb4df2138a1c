"""``bookkeeper admin``: the page of a cluster, and its JSON."""

from __future__ import annotations

import os
import signal
import threading

import click

from bookkeeper_metadata.environment import METADATA_URI_VARIABLE
from spark_bookkeeper.cli.options import debug_option, uri_option

PORT = 8765
_PATIENCE = (("metadata_timeout_ms", "5000"),)
"""Less than the HTTP server has with a connection: whoever asks is told that ZooKeeper does not answer."""


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to serve on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=PORT,
    show_default=True,
    help="TCP port; 0 takes a free one.",
)
@click.option(
    "--insecure",
    is_flag=True,
    help="Allow a host beyond loopback: anybody who reaches the port can see the cluster's metadata.",
)
@uri_option
@debug_option
def admin(uri: str, *, host: str, port: int, insecure: bool) -> None:
    """Serve a page that shows the cluster: bookies, ledgers, logs, lag, healing. It changes nothing.

    Its documents are JSON under /api/v1, and /metrics has what Prometheus asks for about logs and their consumers.
    Runs until SIGTERM or Ctrl-C.
    """
    from bookie_server.logs import set_up_logging
    from bookie_server.settings import is_loopback
    from bookkeeper_metadata.foundation.http_server import HttpServer
    from bookkeeper_metadata.paths import parse_uri
    from spark_bookkeeper.admin.page.routes import routes_of
    from spark_bookkeeper.datasource.options.model import TargetOptions
    from spark_bookkeeper.datasource.session import open_session
    from spark_bookkeeper.environment import given_client_settings

    if not insecure and not is_loopback(host):
        raise click.UsageError(
            f"a host beyond loopback has no TLS and no authentication; say --insecure; {host=}"
        )
    parse_uri(uri)  # wrong use, rather than a page of errors
    set_up_logging("warning", "text")
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    client_settings = (*_PATIENCE, *given_client_settings(os.environ))
    target = TargetOptions(metadata_service_uri=uri, client_settings=client_settings)
    routes = routes_of(lambda: open_session(target))
    server = HttpServer(host, port, routes, is_private=is_loopback(host), setting="port")
    shown_host = f"[{host}]" if ":" in host else host
    click.echo(
        f"http://{shown_host}:{server.port}/ shows {uri} ({METADATA_URI_VARIABLE}); Ctrl-C stops it."
    )
    # Waiting with a timeout lets signal handlers run on every platform.
    while not ended.wait(1.0):
        pass
    server.close()
