"""ByteStream over a TCP socket, connecting, and listening.

A process forked from one that has connections inherits their descriptors. It must use none of them, nor
end what is its parent's: it closes them without a word, and connects anew.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any
from weakref import WeakSet

from bookie_server.carrier.byte_stream import ByteStream
from bookie_server.wire.buffer import Buffer
from bookkeeper_metadata.endpoints import authority

_UNANSWERED_MAX_MS = 30_000
"""Bytes that the peer's kernel does not take for so long break a connection: the peer is gone, or its
process has stopped to read, for three times as long as an add waits."""
_OPTIONS = {
    # A frame is sent as a whole: nothing is gained by waiting for more.
    "TCP_NODELAY": 1,
    # A peer that says nothing is asked by the kernel whether it is there: after ten seconds, every five, four times.
    "TCP_KEEPIDLE": 10,
    "TCP_KEEPINTVL": 5,
    "TCP_KEEPCNT": 4,
    "TCP_USER_TIMEOUT": _UNANSWERED_MAX_MS,
}
_BACKLOG = 1_024

_inheritable: WeakSet[SocketStream] = WeakSet()


def _forget_inherited() -> None:
    for stream in tuple(_inheritable):
        stream.abandon()


os.register_at_fork(after_in_child=_forget_inherited)


class SocketStream(ByteStream):
    """Owns a connected socket; made on, and used from, one event loop."""

    def __init__(self, connected: socket.socket, peer: str) -> None:
        self.peer = peer
        self._socket = connected
        self._descriptor = connected.fileno()
        self._loop = asyncio.get_running_loop()
        self._is_closed = False
        self._when_readable: Callable[[], None] | None = None
        self._is_watched = False
        """Whether the loop tells when there is something to receive."""
        self._is_drained = False
        self._when_writable: Callable[[], None] | None = None
        self._is_watched_for_room = False
        self._is_full = False
        connected.setblocking(False)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _OPTIONS.items():
            # Some of them Linux alone has.
            if hasattr(socket, option):
                connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
        _inheritable.add(self)

    def send(self, buffers: Sequence[Buffer]) -> int:
        # What was not taken whole has filled the kernel's memory: it need not be asked to hear that.
        if self._is_full:
            self._is_full = False
            return 0
        with suppress(BlockingIOError, InterruptedError):
            taken = self._socket.sendmsg(buffers)
            self._is_full = taken < sum(map(len, buffers))
            return taken
        return 0

    def call_when_writable(self, call: Callable[[], None]) -> None:
        self._when_writable = call
        self._is_full = False
        if not self._is_watched_for_room:
            self._is_watched_for_room = True
            self._loop.add_writer(self._descriptor, self._on_writable)

    def _on_writable(self) -> None:
        call, self._when_writable = self._when_writable, None
        if call is not None:
            call()
        self._rest_unless_room_is_wanted()

    def _rest_unless_room_is_wanted(self) -> None:
        # Mostly whoever was called has sent what there is room for, and waits for more.
        if self._when_writable is None and not self._is_closed:
            self._is_watched_for_room = False
            self._loop.remove_writer(self._descriptor)

    def receive_into(self, buffer: memoryview) -> int | None:
        # What did not fill the last buffer was all: the kernel need not be asked to hear that.
        if self._is_drained:
            self._is_drained = False
            return None
        with suppress(BlockingIOError, InterruptedError):
            count = self._socket.recv_into(buffer)
            self._is_drained = 0 < count < len(buffer)
            return count
        return None

    def call_when_readable(self, call: Callable[[], None]) -> None:
        self._when_readable = call
        self._is_drained = False
        if not self._is_watched:
            self._is_watched = True
            self._loop.add_reader(self._descriptor, self._on_readable)

    def _on_readable(self) -> None:
        call, self._when_readable = self._when_readable, None
        if call is not None:
            call()
        else:
            # Not before: mostly somebody wants the next bytes before they come, and to watch again costs more.
            self._is_watched = False
            self._loop.remove_reader(self._descriptor)

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._is_full = False
        self._loop.remove_reader(self._descriptor)
        self._loop.remove_writer(self._descriptor)
        # A child of this process may hold the socket still, and it would stay open by that.
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def abandon(self) -> None:
        """In a child: close the descriptor, and nothing else; the selector and the loop are the parent's."""
        self._is_closed = True
        self._socket.close()


async def connect(host: str, port: int) -> SocketStream:
    """Connect to the first of the host's addresses that answers.

    Raises:
        OSError: none does.
    """
    loop = asyncio.get_running_loop()
    refused: OSError = OSError(errno.EADDRNOTAVAIL, "the host has no address", host)
    for family, kind, protocol, _, address in await _look_up(host.strip("[]"), port):
        connecting = socket.socket(family, kind, protocol)
        try:
            connecting.setblocking(False)
            await loop.sock_connect(connecting, address)
            return SocketStream(connecting, authority(host, port))
        except OSError as error:
            connecting.close()
            refused = error
        except BaseException:
            connecting.close()
            raise
    raise refused


async def _look_up(host: str, port: int) -> list[Any]:
    """The host's addresses, as ``getaddrinfo`` tells them."""
    numeric = socket.AI_NUMERICHOST
    try:
        with suppress(socket.gaierror):
            # What is an address already takes no thread, of which look-ups of names may have all.
            return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=numeric)
        return await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (ValueError, OverflowError) as error:
        # What stands in the metadata anybody may have written; of such hosts these say more than that they are none.
        raise OSError(errno.EINVAL, f"no host can be called so ({error})", host[:64]) from error


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens there; at a free port for 0.

    Raises:
        OSError: somebody else has the port, or the host is none of this machine's.
    """
    family, _, _, _, address = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)[
        0
    ]
    # As gRPC does: all addresses are those of both kinds.
    is_dual = family is socket.AF_INET6 and address[0] == "::" and socket.has_dualstack_ipv6()
    listener = socket.create_server(
        address[:2], family=family, backlog=_BACKLOG, dualstack_ipv6=is_dual
    )
    listener.setblocking(False)
    return listener
