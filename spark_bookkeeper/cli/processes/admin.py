"""``bookkeeper admin``: the page of a cluster, and its JSON."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from bookkeeper_metadata.endpoints import authority
from bookkeeper_metadata.environment import METADATA_URI_VARIABLE
from bookkeeper_metadata.foundation.tls.settings import TlsSettings
from spark_bookkeeper.cli.options import debug_option, uri_option

if TYPE_CHECKING:
    from bookkeeper_metadata.foundation.tls.contexts import Tls

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
@click.option(
    "--tls-certificate-path",
    envvar="BOOKKEEPER_ADMIN_TLS_CERTIFICATE_PATH",
    show_envvar=True,
    metavar="PATH",
    help="Serve over TLS, with this certificate.",
)
@click.option(
    "--tls-key-path",
    envvar="BOOKKEEPER_ADMIN_TLS_KEY_PATH",
    show_envvar=True,
    metavar="PATH",
    help="Its key, where the certificate's file has none.",
)
@click.option(
    "--tls-trust-path",
    envvar="BOOKKEEPER_ADMIN_TLS_TRUST_PATH",
    show_envvar=True,
    metavar="PATH",
    help="Certificates of whoever may vouch for those who ask.",
)
@click.option(
    "--tls-client-authentication/--no-tls-client-authentication",
    default=True,
    show_default=True,
    help="Over TLS, refuse whoever shows no certificate.",
)
@uri_option
@debug_option
def admin(uri: str, *, host: str, port: int, insecure: bool, **tls_options: Any) -> None:
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

    wants_certificate = tls_options.pop("tls_client_authentication")
    files = {name: path for name, path in tls_options.items() if path}
    tls = _tls_of(files)
    if not (insecure or is_loopback(host) or (tls is not None and wants_certificate)):
        raise click.UsageError(
            "anybody could use a host beyond loopback as it is; give --tls-certificate-path and --tls-trust-path, "
            f"or say --insecure; {host=}"
        )
    parse_uri(uri)  # wrong use, rather than a page of errors
    set_up_logging("warning", "text")
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    # Bookies are asked with the same certificate, unless the environment says with which, as of every command.
    given = {**files, **dict(given_client_settings(os.environ))}
    client_settings = (*_PATIENCE, *given.items())
    target = TargetOptions(metadata_service_uri=uri, client_settings=client_settings)
    routes = routes_of(lambda: open_session(target))
    server = HttpServer(
        host,
        port,
        routes,
        is_private=is_loopback(host),
        setting="port",
        tls=tls,
        wants_certificate=wants_certificate,
    )
    click.echo(
        f"http{'' if tls is None else 's'}://{authority(host, server.port)}/ shows {uri} ({METADATA_URI_VARIABLE}); Ctrl-C stops it."
    )
    # Waiting with a timeout lets signal handlers run on every platform.
    while not ended.wait(1.0):
        pass
    server.close()


def _tls_of(files: Mapping[str, str]) -> Tls | None:
    """How to serve with these files, by their settings; ``None``: in clear."""
    from bookkeeper_metadata.foundation.tls.contexts import tls_of

    settings = TlsSettings(**files)  # type: ignore[arg-type]
    return tls_of(settings.tls_files) if settings.tls_certificate_path else None
