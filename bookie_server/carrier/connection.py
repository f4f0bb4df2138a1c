"""Connection: messages over a byte stream, both ways.

Sending copies nothing: the buffers of a message go to the kernel as they are, and what it does not take
at once is kept as the rest of those buffers. Receiving puts a message's bytes where they stay: memory for
a message is made when its head has been read and its receiver has room for it.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from bookie_server.carrier.byte_stream import BUFFERS_MAX, ByteStream
from bookie_server.carrier.read_ahead import ReadAhead
from bookie_server.carrier.tls_stream import secure
from bookie_server.wire.buffer import Buffer
from bookie_server.wire.envelope import HEAD_SIZE, Head, Kind, encode_head, parse_head
from bookkeeper_metadata.foundation.tasks import settle

STEP_S = 0.002
"""About the longest that one connection keeps the event loop to itself while bytes keep coming."""
_LOGGER = logging.getLogger(__name__)
_DISCARDED_AT_ONCE = 64 * 1024


def new_body(size_bytes: int) -> memoryview:
    """Memory for what follows a head."""
    # Not a bytearray, which is filled with zeros first.
    return np.empty(size_bytes, np.uint8).data


class ConnectionEndedError(ConnectionError):
    """It broke, was closed, or ended in the middle of a message."""


class EndedByTlsError(ConnectionEndedError):
    """The other end, or this one, does not take what TLS showed it: a certificate, a version, changed bytes."""


Then = Callable[[], memoryview | None]
"""Called when memory is full: what is to be filled next, at once; ``None``: that is for the receiving task
to say. Runs between two steps of the event loop; an error ends the connection."""


@dataclass(slots=True)
class _Filling:
    """Memory that bytes of the peer are to fill."""

    missing: memoryview
    """What is not filled yet."""
    then: Then | None
    is_done: asyncio.Future[bool]
    """Whether it is full; false: the peer has ended the connection before."""
    has_begun: bool = False


class Connection:
    """Owns the stream; for use on one event loop. One task receives, any number send."""

    def __init__(self, stream: ByteStream) -> None:
        self.peer = stream.peer
        self.common_name = stream.common_name
        """As of the stream."""
        self._stream = stream
        self._ahead = ReadAhead(stream)
        self._unsent: deque[Buffer] = deque()
        self.unsent_bytes = 0
        """Of what was sent: how much the kernel has not taken yet."""
        self.received_bytes = 0
        """Into memory that was to be filled."""
        self._loop = asyncio.get_running_loop()
        self._pause_at_s = 0.0
        self._is_waiting = False
        self._filling: _Filling | None = None
        self._awaited: asyncio.Future[Any] | None = None
        """What whoever receives waits for, and the end of the connection settles."""
        self._drained: asyncio.Future[None] | None = None
        self._end = ""
        """Why it has ended; empty: it has not."""
        self._end_kind: type[ConnectionEndedError] = ConnectionEndedError
        self.head = memoryview(bytearray(HEAD_SIZE))
        """The bytes of the head received last."""

    @property
    def has_ended(self) -> bool:
        """Whether nobody is there any more, as far as is known here."""
        return bool(self._end)

    def send(self, kind: Kind, parts: Sequence[Buffer], number: int = 0) -> None:
        """Send a message; what is not taken at once is sent as soon as it is.

        That the connection has ended is not told here, but to whoever receives, or waits in ``drain``.
        """
        self.write((encode_head(Head(kind, sum(map(len, parts)), number)), *parts))

    def write(self, parts: Iterable[Buffer]) -> None:
        """Send what is no message of ours, or is one already, as ``send`` does."""
        if self._end:
            return
        for part in parts:
            if size_bytes := len(part):
                self._unsent.append(part)
                self.unsent_bytes += size_bytes
        if not self._is_waiting:
            self._flush()

    async def drain(self) -> None:
        """Wait until the kernel has taken all that was sent.

        Raises:
            ConnectionEndedError: it never will.
        """
        while self._unsent and not self._end:
            if self._drained is None:
                self._drained = self._loop.create_future()
            await asyncio.shield(self._drained)
        self._check()

    async def receive_head(self, then: Then | None = None) -> Head | None:
        """The next message's head; ``None``: the peer has ended the connection between two messages.

        With ``then`` whole messages may be taken without this task, for which each would be a turn of the
        loop: it is called when :attr:`head` is full, and says with what memory to go on, which may be that
        of the next head. The head returned is one for which it said nothing.

        Raises:
            ConnectionEndedError: it has ended otherwise.
            MalformedFrameError: what comes is no head.
        """
        return parse_head(self.head) if await self._fill(self.head, then) else None

    async def receive_body(self, size_bytes: int) -> memoryview:
        """What follows the head, at once; or :meth:`fill` a body part by part.

        Raises:
            ConnectionEndedError: not all of it came.
        """
        body = new_body(size_bytes)
        await self.fill(body)
        return body

    async def fill(self, part: memoryview) -> None:
        """Receive the next bytes of a body; raises as :meth:`receive_body` does."""
        if len(part) and not await self._fill(part):
            raise self._ended("in the middle of a message")

    async def receive_some(self, memory: memoryview) -> int:
        """Put what has come there, at least a byte; 0: the peer has ended the connection.

        The memory is written to in the step of the loop that this returns in, so connections may share it.

        Raises:
            ConnectionEndedError: it has ended otherwise.
        """
        if self._loop.time() >= self._pause_at_s:
            await asyncio.sleep(0)
            self._pause_at_s = self._loop.time() + STEP_S
        while True:
            self._check()
            try:
                count = self._ahead.receive_into(memory)
            except OSError as error:
                raise self._broken(error) from error
            if count is not None:
                return count
            self._awaited = self._loop.create_future()
            self._stream.call_when_readable(partial(settle, self._awaited, None))
            await self._awaited

    async def receive_each(self, memory: memoryview, take: Callable[[int], bool]) -> bool:
        """Have ``take`` called with how many bytes have come there, whenever some have, until it says false.

        It is called between two steps of the event loop, so what it takes costs this task no turn. Returns true once it has said
        false; false: the peer has ended the connection. An error of its own ends the connection here.

        Raises:
            ConnectionEndedError: it has ended otherwise.
        """
        self._check()
        over: asyncio.Future[bool] = self._loop.create_future()
        self._awaited = over

        def go_on() -> None:
            pause_at_s = self._loop.time() + STEP_S
            while not over.done():
                try:
                    count = self._ahead.receive_into(memory)
                    if count is None:
                        break
                    if not count or not take(count):
                        settle(over, bool(count))
                except OSError as error:
                    self._broken(error)
                except Exception:
                    # A defect ends this connection, and none of the others.
                    _LOGGER.exception("taking what came. peer=%s", self.peer)
                    self._ended("it met a defect here")
                if self._loop.time() >= pause_at_s:
                    break
            # Once nobody waits any longer, what comes is left to who receives next.
            if not over.done():
                self._call_when_more(go_on)

        go_on()
        is_taken = await over
        self._check()
        return is_taken

    async def discard_all(self) -> None:
        """Read until the connection ends, and keep nothing."""
        scratch = memoryview(bytearray(_DISCARDED_AT_ONCE))
        with suppress(ConnectionEndedError):
            while await self._fill(scratch):
                pass

    async def start_tls(self, context: ssl.SSLContext, host: str | None = None) -> None:
        """Go on over TLS, once both ends have agreed; ``host`` as of :class:`TlsStream`. Whoever calls it has drained.

        Raises:
            OSError: they did not agree, and the connection is broken.
        """
        self._stream = await secure(self._stream, context, host)
        # What came in clear, and was not asked for, is nobody's.
        self._ahead = ReadAhead(self._stream)
        self.common_name = self._stream.common_name

    def close(self) -> None:
        """End it, at once: what is not sent is lost; idempotent."""
        self._ended("closed")

    async def _fill(self, buffer: memoryview, then: Then | None = None) -> bool:
        """Whether it is full; else the peer sent nothing more at all."""
        # As long as bytes are there they are taken without a pause.
        if self._loop.time() >= self._pause_at_s:
            await asyncio.sleep(0)
            self._pause_at_s = self._loop.time() + STEP_S
        self._check()
        filling = self._filling = _Filling(buffer, then, self._loop.create_future())
        try:
            self._receive_all(filling)
            if not filling.is_done.done():
                # What comes is taken from the loop: this task goes on when all is here.
                await filling.is_done
                self._pause_at_s = self._loop.time() + STEP_S
        finally:
            self._filling = None
        is_full = filling.is_done.result()
        if not is_full:
            self._check()
        return is_full

    def _go_on(self) -> None:
        if self._filling is not None and not self._filling.is_done.done():
            self._receive_all(self._filling)

    def _receive_all(self, filling: _Filling) -> None:
        """Take what is here; what is not, or is too much at once, when the loop tells of it."""
        pause_at_s = self._loop.time() + STEP_S
        while self._receive(filling):
            if filling.is_done.done() or self._loop.time() >= pause_at_s:
                break
        self._ahead.keep()
        if not filling.is_done.done():
            self._call_when_more(self._go_on)

    def _call_when_more(self, call: Callable[[], None]) -> None:
        if self._ahead.has_bytes:
            self._loop.call_soon(call)
        else:
            self._stream.call_when_readable(call)

    def _receive(self, filling: _Filling) -> bool:
        """Take what is here; false: there is nothing yet."""
        try:
            missing = filling.missing
            count = self._ahead.receive_into(missing, is_head=missing is self.head)
        except OSError as error:
            self._broken(error)
            return True
        if count is None:
            return False
        self.received_bytes += count
        filling.missing = filling.missing[count:]
        if not filling.missing:
            self._on_full(filling)
        elif not count and filling.has_begun:
            self._ended("in the middle of a message")
        elif not count:
            filling.is_done.set_result(False)
        else:
            filling.has_begun = True
        return True

    def _on_full(self, filling: _Filling) -> None:
        following: memoryview | None = None
        try:
            if filling.then is not None:
                following = filling.then()
        except Exception:
            # A defect ends this connection, and none of the others.
            _LOGGER.exception("taking a message. peer=%s", self.peer)
            self._ended("it met a defect here")
        # What was done may have ended it, too.
        if filling.is_done.done():
            return
        if following is None:
            filling.is_done.set_result(True)
        else:
            filling.missing = following
            # Only in front of a head may the peer end the connection.
            filling.has_begun = following is not self.head

    def _flush(self) -> None:
        self._is_waiting = False
        while self._unsent:
            try:
                taken = self._stream.send(tuple(islice(self._unsent, BUFFERS_MAX)))
                if not taken:
                    self._is_waiting = True
                    self._stream.call_when_writable(self._flush)
                    return
            except OSError as error:
                self._broken(error)
                return
            self.unsent_bytes -= taken
            self._forget(taken)
        self._tell()

    def _forget(self, taken: int) -> None:
        unsent = self._unsent
        while taken:
            first = unsent.popleft()
            if taken < len(first):
                unsent.appendleft(memoryview(first)[taken:])
                return
            taken -= len(first)

    def _check(self) -> None:
        if self._end:
            raise self._end_kind(self._end)

    def _broken(self, error: OSError) -> ConnectionEndedError:
        """End it, for the stream says this; returns why it has ended."""
        if not self._end and isinstance(error, ssl.SSLError):
            self._end_kind = EndedByTlsError
        return self._ended(str(error))

    def _ended(self, detail: str) -> ConnectionEndedError:
        """End it, unless it has ended; returns why it has."""
        if not self._end:
            self._end = f"{detail}; peer={self.peer}"
            self._unsent.clear()
            self.unsent_bytes = 0
            self._stream.close()
            self._tell()
            if self._filling is not None:
                # Not as its exception: that would hold the memory to be filled, in a cycle.
                settle(self._filling.is_done, False)
            if self._awaited is not None:
                settle(self._awaited, None)
        return self._end_kind(self._end)

    def _tell(self) -> None:
        if self._drained is not None:
            settle(self._drained, None)
            self._drained = None
