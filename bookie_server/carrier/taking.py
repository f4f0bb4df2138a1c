"""Messages that are taken where they come, in the callback of the event loop that receives them.

For a task each message would be a turn of the loop, or two: on a stream of small messages that is what
most of the time goes to. What has to wait for anything is left to the task all the same.
"""

from __future__ import annotations

from collections.abc import Callable

from bookie_server.carrier.connection import Connection
from bookie_server.wire.codec import MalformedFrameError
from bookie_server.wire.envelope import Head, parse_head

MemoryFor = Callable[[Head], memoryview | None]
"""Memory for a message's body; ``None``: the message is for the task."""
TakeAtOnce = Callable[[memoryview], bool]
"""Takes a body; false: it did nothing, and the body is for the task."""


async def receive_untaken(
    connection: Connection, memory_for: MemoryFor, take_at_once: TakeAtOnce
) -> tuple[Head, memoryview | None] | None:
    """The next message that was not taken at once: its head, and its body if that was received.

    ``None``: the peer has ended the connection between two messages.

    Raises:
        ConnectionEndedError: it has ended otherwise.
        MalformedFrameError: what comes is no head.
    """
    taking = _Taking(connection.head, memory_for, take_at_once)
    head = await connection.receive_head(taking.next_part)
    return None if head is None else (head, taking.untaken)


class _Taking:
    def __init__(self, head: memoryview, memory_for: MemoryFor, take_at_once: TakeAtOnce) -> None:
        self._head = head
        self._memory_for = memory_for
        self._take_at_once = take_at_once
        self._body: memoryview | None = None
        self.untaken: memoryview | None = None

    def next_part(self) -> memoryview | None:
        """What to receive behind a head or a body that has come; see :meth:`Connection.receive_head`."""
        body, self._body = self._body, None
        if body is None:
            self._body = self._begin()
            return self._body
        if self._take_at_once(body):
            return self._head
        self.untaken = body
        return None

    def _begin(self) -> memoryview | None:
        try:
            head = parse_head(self._head)
        except MalformedFrameError:
            return None  # whoever receives it says so
        # An empty body would never be filled, and so never taken.
        return self._memory_for(head) if head.size_bytes else None
