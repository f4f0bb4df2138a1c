"""How kazoo connects to a server, waits for it and is told of requests: not for ever for one that says nothing, and
without a descriptor of its own.

kazoo gives one attempt to connect the whole session timeout, divided among the servers. Of a single
one that accepts connections while it is still starting, and never answers on them, that is as long
as the request may take that waits for the connection. And its ``select`` opens a descriptor each time:
where there is none left, a connection that is lost would stay lost, and the session with it.

Whoever hands it a request sends its thread a byte, and waits where 278 have not been read; while a server says nothing,
that would be the event loop. Here one byte stands for all of them.

TLS is made here, too: kazoo's own trusts what the system trusts besides, checks no names unless it is told to, takes
TLS 1.0, says nothing of why it failed, and waits for what TLS has read already.
"""

from __future__ import annotations

import select
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from kazoo.handlers.threading import SequentialThreadingHandler

from bookkeeper_metadata.foundation.tls.contexts import Tls

_ATTEMPTS = 3
"""To connect, that fit into a session timeout: the second and third may meet a server that has started."""
_STRAY_BYTES_MAX = 4_096
_READABLE = select.POLLIN | select.POLLHUP | select.POLLERR | select.POLLNVAL
_WRITABLE = select.POLLOUT | select.POLLHUP | select.POLLERR | select.POLLNVAL


class PollingHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's threads, with a patience of their own; see the module."""

    def __init__(self, session_timeout_s: float, tls: Tls | None) -> None:
        super().__init__()
        self._attempt_s = session_timeout_s / _ATTEMPTS
        self._tls = tls
        self.tls_failure = ""
        """Why TLS failed last since there was a connection."""
        self.is_connected: Callable[[], bool] = lambda: False
        """Whether the session has a connection; until then what is waited for is an attempt."""

    def select(
        self,
        readers: Sequence[Any],
        writers: Sequence[Any],
        _exceptional: Sequence[Any],
        timeout: float | None = None,
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """As ``select.select``, but for numbers of any size, and for an attempt with a limit."""
        # What TLS has taken from the socket is no event of the socket's any more.
        taken = [file for file in readers if isinstance(file, _TlsConnection) and file.pending()]
        if taken:
            timeout = 0.0
        if not self.is_connected():
            timeout = self._attempt_s if timeout is None else min(timeout, self._attempt_s)
        poll = select.poll()
        for file in {*readers, *writers}:
            wanted = (select.POLLIN if file in readers else 0) | (
                select.POLLOUT if file in writers else 0
            )
            poll.register(file, wanted)
        found = dict(poll.poll(None if timeout is None else timeout * 1000))
        return (
            [f for f in readers if f in taken or found.get(_number(f), 0) & _READABLE],
            [file for file in writers if found.get(_number(file), 0) & _WRITABLE],
            [],
        )

    def create_socket_pair(self) -> tuple[Any, Any]:
        """What kazoo's thread reads from, and what is written to, for each request."""
        bell = _Bell()
        return bell, bell

    def create_connection(self, *arguments: Any, timeout: float, **options: Any) -> Any:
        """A connection to a server, within an attempt."""
        timeout = min(timeout, self._attempt_s)
        connection = super().create_connection(*arguments, timeout=timeout, **options)
        if self._tls is None:
            return connection
        try:
            with self._noting_failures():
                connection.settimeout(self._attempt_s)  # of the whole handshake
                # A context of the files as they are now: a certificate may have been renewed.
                return _TlsConnection(
                    self._tls.client_context().wrap_socket(
                        connection, server_hostname=options["hostname"]
                    ),
                    self._noting_failures,
                )
        except BaseException:
            connection.close()
            raise

    @contextmanager
    def _noting_failures(self) -> Iterator[None]:
        """To kazoo every failure is a lost connection, and nobody would learn that there will never be one."""
        try:
            yield
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as failure:
            self.tls_failure = failure.strerror or str(failure)
            raise


class _TlsConnection:
    """What kazoo asks of a socket. A server that wants a certificate says so only as an answer to the first request."""

    def __init__(self, connection: ssl.SSLSocket, noting_failures: Callable[[], Any]) -> None:
        self._connection = connection
        self._noting_failures = noting_failures
        self.fileno = connection.fileno
        self.pending = connection.pending
        self.setblocking = connection.setblocking

    def recv(self, size_bytes: int) -> bytes:
        with self._noting_failures():
            return self._connection.recv(size_bytes)

    def send(self, message: Any) -> int:
        with self._noting_failures():
            return self._connection.send(message)

    def close(self) -> None:
        self._connection.close()


class _Bell:
    """What kazoo asks of both ends of a pair of sockets. A byte is in it while there is any that was written and not read."""

    def __init__(self) -> None:
        self._read_end, self._write_end = socket.socketpair()
        self._read_end.setblocking(False)
        self._lock = threading.Lock()
        self._count = 0
        self.fileno = self._read_end.fileno

    def send(self, byte: bytes) -> int:
        with self._lock:
            if not self._count:
                self._write_end.send(byte)
            self._count += 1
        return 1

    def recv(self, _: int) -> bytes:
        with self._lock:
            if self._count <= 1:
                # All that is there: a forked child, which counts by itself, may have written more, or taken it.
                with suppress(BlockingIOError):
                    self._read_end.recv(_STRAY_BYTES_MAX)
            # kazoo reads where it finds nothing to send, too.
            self._count = max(0, self._count - 1)
        return b"\0"

    def close(self) -> None:
        self._read_end.close()
        self._write_end.close()


def _number(file: Any) -> int:
    return file if isinstance(file, int) else int(file.fileno())
