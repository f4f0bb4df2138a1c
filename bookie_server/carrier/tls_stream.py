"""ByteStream over TLS, above another byte stream: whoever uses it need not know.

OpenSSL works in memory here, so that our sockets stay ours: what it makes of many buffers goes to the kernel at once,
and the same code runs over simulated streams.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from bookie_server.carrier.byte_stream import ByteStream
from bookie_server.carrier.sockets import connect
from bookie_server.wire.buffer import Buffer
from bookkeeper_metadata.foundation.tasks import settle
from bookkeeper_metadata.foundation.tls.contexts import Tls

_RECORD_SIZE_MAX = 16 * 1024
"""Bytes that are encrypted as one."""
_RECORD_OVERHEAD = 256
"""More than a record is larger by when it is encrypted."""
_SENT_AT_ONCE = 96 * 1024
"""Bytes that are encrypted before the kernel is offered them: a usual frame with its head. OpenSSL keeps memory for as many, of each
connection."""
_RECEIVED_AT_ONCE = 64 * 1024
_UNSENT_MAX = 4 * _SENT_AT_ONCE
"""Encrypted bytes that may wait: more than what is sent is TLS's own, which a peer can make it say without end."""


class _Scratch(threading.local):
    """What the kernel puts encrypted bytes into; they are copied out of it before the event loop goes on."""

    def __init__(self) -> None:
        self.memory = memoryview(bytearray(_RECEIVED_AT_ONCE))


_scratch = _Scratch()


class TlsStream(ByteStream):
    """Owns the stream below it; for use on one event loop. Nothing but :meth:`handshake` may come first."""

    def __init__(self, below: ByteStream, context: ssl.SSLContext, host: str | None) -> None:
        """``host`` is the one that a client connected to; ``None``: this is the server."""
        self.peer = below.peer
        self._below = below
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=host is None, server_hostname=host
        )
        self._loop = asyncio.get_running_loop()
        self._unsent = memoryview(b"")
        """Encrypted bytes that the stream below has not taken."""
        self._is_owed = False
        """Whether the last byte that was encrypted has not been told as taken: it is, once all before it is."""
        self._is_waiting = False
        self._when_writable: Callable[[], None] | None = None
        self._has_none = False
        """Whether nothing whole was here at the last look, in memory or below."""
        self._is_established = False

    async def handshake(self) -> None:
        """Agree with the peer on keys, and on who it is.

        Raises:
            OSError: it is not who it should be, does not trust us, speaks no TLS, or is gone.
        """
        while True:
            try:
                self._tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                pass
            except OSError:
                # What is wrong is told to the peer.
                with suppress(OSError):
                    self._push()
                raise
            self._push()
            await self._receive_more()
        self._push()
        self._is_established = True
        self.common_name = _common_name(self._tls)

    def send(self, buffers: Sequence[Buffer]) -> int:
        """As of any stream; the bytes that are not taken must be those that the next call begins with."""
        self._push()
        if self._unsent:
            return 0
        told = int(self._is_owed)
        encrypted = 0
        for record in _records(buffers, told):
            rest = memoryview(record)
            while rest:
                # Less than all of it where the peer has asked for smaller records.
                taken = self._tls.write(rest)
                encrypted += taken
                rest = rest[taken:]
        self._push()
        self._is_owed = bool(self._unsent) and encrypted > 0
        return told + encrypted - int(self._is_owed)

    def call_when_writable(self, call: Callable[[], None]) -> None:
        self._when_writable = call
        if not self._is_waiting:
            self._wait()

    def receive_into(self, buffer: memoryview) -> int | None:
        self._has_none = False
        count = self._read(buffer)
        if count is None:
            if self._feed(len(buffer)):
                # Not again and again: what comes may be TLS's own, and no end of it.
                count = self._read(buffer)
            else:
                self._has_none = True
        return count

    def _read(self, buffer: memoryview) -> int | None:
        try:
            return int(self._tls.read(len(buffer), buffer))
        except ssl.SSLZeroReturnError:
            return 0
        except ssl.SSLWantReadError:
            return None
        finally:
            self._answer_peer()

    def call_when_readable(self, call: Callable[[], None]) -> None:
        if not self._has_none and (self._tls.pending() or self._incoming.pending):
            self._loop.call_soon(call)
        else:
            self._below.call_when_readable(call)

    def close(self) -> None:
        if self._is_established:
            # So that the peer knows that nothing was cut off; it may be gone, and need not answer.
            with suppress(OSError):
                self._tls.unwrap()
            with suppress(OSError):
                self._push()
        self._below.close()

    def _feed(self, wanted_bytes: int) -> bool:
        """Take encrypted bytes from below; false: there are none now."""
        # Little more than is asked for: what is ahead is in nobody's account.
        size = max(wanted_bytes, _RECORD_SIZE_MAX) + _RECORD_OVERHEAD
        count = self._below.receive_into(_scratch.memory[:size])
        if count is None:
            return False
        if count:
            self._incoming.write(_scratch.memory[:count])
        else:
            self._incoming.write_eof()
        return True

    async def _receive_more(self) -> None:
        while not self._feed(_RECORD_SIZE_MAX):
            awaited = self._loop.create_future()
            self._below.call_when_readable(partial(settle, awaited, None))
            await awaited

    def _answer_peer(self) -> None:
        """Send what TLS itself has to say, as that it takes new keys."""
        if not self._outgoing.pending:
            return
        if len(self._unsent) + self._outgoing.pending > _UNSENT_MAX:
            raise ConnectionAbortedError("it asks TLS for answers and does not take them")
        self._push()

    def _push(self) -> None:
        """Offer encrypted bytes to the stream below, until it takes no more."""
        while True:
            if not self._unsent:
                if not self._outgoing.pending:
                    return
                self._unsent = memoryview(self._outgoing.read())
            taken = self._below.send((self._unsent,))
            if not taken:
                if not self._is_waiting:
                    self._wait()
                return
            # An empty part of it would keep all of it in memory.
            self._unsent = self._unsent[taken:] or memoryview(b"")

    def _wait(self) -> None:
        self._is_waiting = True
        self._below.call_when_writable(self._on_writable)

    def _on_writable(self) -> None:
        self._is_waiting = False
        # That the connection is broken is told by the next call, which is the user's.
        with suppress(OSError):
            self._push()
        if not self._is_waiting and self._when_writable is not None:
            call, self._when_writable = self._when_writable, None
            call()


def _records(buffers: Sequence[Buffer], skipped: int) -> Iterator[Buffer]:
    """What to encrypt as one, up to what is sent at once, without the first ``skipped`` bytes; small buffers are joined."""
    small: list[Buffer] = []
    small_bytes = total = 0
    for buffer in buffers:
        if skipped:
            part = memoryview(buffer)[skipped:]
            skipped -= len(buffer) - len(part)
        else:
            part = memoryview(buffer)
        while part:
            size = min(len(part), _RECORD_SIZE_MAX - small_bytes, _SENT_AT_ONCE - total)
            small.append(part[:size])
            small_bytes += size
            total += size
            part = part[size:]
            if small_bytes == _RECORD_SIZE_MAX or total == _SENT_AT_ONCE:
                yield small[0] if len(small) == 1 else b"".join(small)
                small, small_bytes = [], 0
            if total == _SENT_AT_ONCE:
                return
    if small:
        yield small[0] if len(small) == 1 else b"".join(small)


def _common_name(tls: ssl.SSLObject) -> str:
    """Of the peer's certificate; empty: it has none, or none that is one name."""
    certificate: dict[str, Any] = tls.getpeercert() or {}
    found = [
        value
        for relative_names in certificate.get("subject", ())
        for key, value in relative_names
        if key == "commonName"
    ]
    return str(found[0]) if len(found) == 1 else ""


async def secure(below: ByteStream, context: ssl.SSLContext, host: str | None = None) -> TlsStream:
    """A stream over this one, once both ends have agreed; see :class:`TlsStream`.

    Raises:
        OSError: they did not, and the one below is closed.
    """
    stream = TlsStream(below, context, host)
    try:
        await stream.handshake()
    except BaseException:
        below.close()
        raise
    return stream


async def connect_over_tls(host: str, port: int, tls: Tls) -> TlsStream:
    """Connect to the first of the host's addresses that answers; raises ``OSError``."""
    return await secure(await connect(host, port), tls.client_context(), host.strip("[]"))
