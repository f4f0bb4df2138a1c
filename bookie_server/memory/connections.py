"""Connections: how to end one of this process's own.

gRPC has no way to drop a reply that its client does not take: even a call that was aborted keeps it
until the client is gone. But the sockets are this process's own, and shutting one down ends all calls of
its client and frees what gRPC holds for them. Where ``/proc`` does not show a process its
descriptors (any system but Linux), nothing is found and nothing ended.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import socket
from collections.abc import Iterator
from contextlib import suppress
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from urllib.parse import unquote

_LOGGER = logging.getLogger(__name__)
_DESCRIPTORS = Path("/proc/self/fd")
_PEER = re.compile(r"ipv[46]:\[?([^\]]+)\]?:(\d+)")

Peer = tuple[str, int]
"""Address and port of a client."""


class Connections:
    """The connections of clients to this port, by the names gRPC gives them; ``None``: none is known."""

    def __init__(self, port: int | None) -> None:
        self._port = port
        self._unwanted: set[Peer] = set()
        self._ending: asyncio.Task[None] | None = None

    def disconnect(self, client: str) -> None:
        """End the connection of a client that keeps others waiting, and all its calls; soon."""
        peer = peer_of(client)
        if self._port is None or peer is None:
            return
        self._unwanted.add(peer)
        if self._ending is None or self._ending.done():
            self._ending = asyncio.create_task(self._end(self._port), name="disconnect")

    async def _end(self, port: int) -> None:
        while self._unwanted:
            peers, self._unwanted = self._unwanted, set()
            # Thousands of connections take a tenth of a second to look through, too long for
            # the loop; and a client has many rooms to lose, but only one connection.
            for peer in await asyncio.to_thread(end_connections, port, peers):
                _LOGGER.warning(
                    "disconnected: it keeps room that others wait for. peer=%s:%d", *peer
                )


def peer_of(text: str) -> Peer | None:
    """The client of a call as gRPC names it, e.g. ``ipv4:127.0.0.1:3181``."""
    found = _PEER.fullmatch(unquote(text))
    return _peer(found[1], int(found[2])) if found else None


def end_connections(port: int, peers: set[Peer]) -> list[Peer]:
    """End these clients' connections to this port and all their calls; returns those that were there."""
    ended: list[Peer] = []
    for peer, connection in _connections(port):
        if peer in peers:
            with suppress(OSError):  # it has ended meanwhile
                connection.shutdown(socket.SHUT_RDWR)
            ended.append(peer)
    return ended


def _connections(port: int) -> Iterator[tuple[Peer, socket.socket]]:
    """Every connection to this port; each socket is usable until the next one is asked for."""
    for name in os.listdir(_DESCRIPTORS) if _DESCRIPTORS.is_dir() else ():
        # gRPC's threads open and close descriptors meanwhile: a number may be anything by now.
        with suppress(OSError), _duplicate(int(name)) as connection:
            if connection.family in (socket.AF_INET, socket.AF_INET6):
                _, own_port = connection.getsockname()[:2]
                if own_port == port and connection.type == socket.SOCK_STREAM:
                    yield _peer(*connection.getpeername()[:2]), connection


def _duplicate(descriptor: int) -> socket.socket:
    """Another descriptor of the same socket; an ``OSError`` if it is none."""
    duplicate = os.dup(descriptor)
    try:
        return socket.socket(fileno=duplicate)
    except OSError:
        os.close(duplicate)
        raise


def _peer(address: str, port: int) -> Peer:
    ip = ip_address(address)
    # A socket that listens for both kinds shows IPv4 as a part of IPv6, and gRPC does not.
    if isinstance(ip, IPv6Address) and ip.ipv4_mapped is not None:
        ip = ip.ipv4_mapped
    return str(ip), port
