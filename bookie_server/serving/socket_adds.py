"""A connection of adds: frames in, each whole and its size in front of it, and answers out."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from bookie_server.carrier.connection import Connection, new_body
from bookie_server.carrier.taking import receive_untaken
from bookie_server.memory.frames import FramesInProgress
from bookie_server.serving.adds import FrameCarrier
from bookie_server.serving.connection_carrier import ConnectionCarrier
from bookie_server.wire.buffer import Buffer
from bookie_server.wire.codec import MalformedFrameError
from bookie_server.wire.envelope import Head, Kind
from bookie_server.wire.limits import USUAL_SIZE_MAX


class AddConnection(ConnectionCarrier[Buffer], FrameCarrier):
    """For use on one event loop."""

    async def next(
        self, in_progress: FramesInProgress, take_at_once: Callable[[Buffer], bool]
    ) -> Buffer | None:
        memory_for = partial(_memory_for, in_progress, self._connection)
        message = await receive_untaken(self._connection, memory_for, take_at_once)
        if message is None:
            return None
        head, frame = message
        if head.kind is not Kind.FRAME:
            raise MalformedFrameError(f"a {head.kind.name} among adds")
        if frame is not None:
            return frame
        return await self._receive_promised(in_progress, head.size_bytes)

    def _send(self, answers: bytes) -> None:
        self._connection.send(Kind.WRITE_REPLY, (answers,))


def _memory_for(
    in_progress: FramesInProgress, connection: Connection, head: Head
) -> memoryview | None:
    """Memory for a frame that need not wait for its room."""
    is_usual = head.kind is Kind.FRAME and head.size_bytes <= USUAL_SIZE_MAX
    if not is_usual or not in_progress.try_expect(head.size_bytes, connection):
        return None
    return new_body(head.size_bytes)
