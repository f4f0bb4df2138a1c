"""Binds a bookie's ports; of one that cannot be had gRPC says nothing but that."""

from __future__ import annotations

import errno
import socket

import grpc.aio

from bookie_server.carrier.sockets import listen
from bookie_server.settings import BookieSettings
from bookkeeper_metadata.endpoints import authority
from bookkeeper_metadata.foundation.listening import port_unavailable


def bind(
    server: grpc.aio.Server,
    settings: BookieSettings,
    credentials: grpc.ServerCredentials | None = None,
) -> int:
    """The port bound, which is a free one where the settings say 0; in clear without ``credentials``.

    Raises:
        PortUnavailableError: it cannot be had.
    """
    try:
        address = authority(settings.host, settings.port)
        if credentials is not None:
            return int(server.add_secure_port(address, credentials))
        return int(server.add_insecure_port(address))
    except RuntimeError as cause:
        # A bookie without a name is its address: with another port it would be another bookie.
        stays = f", with --bookie-id {settings.registered_id} if it has data under this one"
        raise port_unavailable(
            _refusal(settings.host, settings.port),
            settings.host,
            settings.port,
            "port",
            remark="" if settings.bookie_id else stays,
        ) from cause


def listen_at(settings: BookieSettings, setting: str) -> socket.socket | None:
    """What listens at the port that a setting names, if anything should.

    Raises:
        PortUnavailableError: it cannot be had.
    """
    port = getattr(settings, setting)
    try:
        return listen(settings.host, port) if port else None
    except OSError as refusal:
        raise port_unavailable(
            refusal, settings.host, port, setting, host_setting="host"
        ) from refusal


def _refusal(host: str, port: int) -> OSError:
    """What the operating system has against this port."""
    try:
        with listen(host, port):
            # It has just become free: it was taken.
            return OSError(errno.EADDRINUSE, "Address already in use")
    except OSError as refusal:
        return refusal
