"""MessageStream: one client's end of a stream of adds, whatever carries it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence

from bookie_server.wire import add_frames
from bookie_server.wire.buffer import Buffer
from bookie_server.wire.messages import EncodedSection, SectionReply


class StreamEndedError(ConnectionError):
    """The stream is over, or never came to be; what was not answered may or may not be stored."""

    def __init__(self, detail: str, *, is_for_room: bool = False) -> None:
        super().__init__(detail)
        self.is_for_room = is_for_room
        """The bookie made room for others: it is there, and takes another stream."""


class MessageStream(ABC):
    """For use on one event loop."""

    @property
    @abstractmethod
    def unsent_bytes(self) -> int:
        """Of what was sent: how much is in memory of this process still."""

    @property
    def entries_max(self) -> int | None:
        """Most entries of the next frame, for which 0 is none now; ``None``: it does not matter."""
        return None

    @abstractmethod
    def send(self, sections: Sequence[EncodedSection]) -> None:
        """Send a frame of these sections; what cannot be sent shows in ``receive``."""

    def parse_replies(self, message: Buffer) -> Sequence[SectionReply]:
        """The answers in a message; raises :class:`MalformedFrameError`."""
        return add_frames.parse_write_reply(message)

    @abstractmethod
    async def receive(self, take_at_once: Callable[[Buffer], bool]) -> Buffer:
        """The next message of the bookie that ``take_at_once`` has not taken.

        Messages need not be offered to that; those that are cost no turn of the event loop.

        Raises:
            StreamEndedError: there will be none.
            MalformedFrameError: what came is no message.
        """

    @abstractmethod
    def close(self) -> None:
        """End it, and have ``receive`` say so; idempotent."""


OpenStream = Callable[[], Awaitable[MessageStream]]
"""Opens a stream; raises :class:`StreamEndedError` where nobody answers."""
