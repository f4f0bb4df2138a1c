"""ByteStream: bytes to and from one peer, in order; a socket in production, a simulated one in tests."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from bookie_server.wire.buffer import Buffer

BUFFERS_MAX = 1_000
"""Most buffers of one ``send``; the kernel takes 1,024."""


class ByteStream(ABC):
    """For use on one event loop. What the peer or the network did is an ``OSError``."""

    peer: str
    """Who is at the other end, for logs and to tell clients apart."""
    common_name: str = ""
    """Who it is by its certificate; empty: it showed none."""

    @abstractmethod
    def send(self, buffers: Sequence[Buffer]) -> int:
        """Send as many bytes of the buffers, at most ``BUFFERS_MAX``, as are taken now; 0: none.

        Raises:
            OSError: the connection is broken, or closed.
        """

    @abstractmethod
    def call_when_writable(self, call: Callable[[], None]) -> None:
        """Call it once, when ``send`` may take bytes again; not after ``close``."""

    @abstractmethod
    def receive_into(self, buffer: memoryview) -> int | None:
        """Put bytes that are here there; returns how many, 0: the peer sends no more, ``None``: none
        are known to be here, ask again or with :meth:`call_when_readable`.

        Raises:
            OSError: the connection is broken, or closed, here as well.
        """

    @abstractmethod
    def call_when_readable(self, call: Callable[[], None]) -> None:
        """Call it once, when ``receive_into`` may have something to give, or to say; not after ``close``."""

    @abstractmethod
    def close(self) -> None:
        """End the connection for both sides, at once; idempotent."""
