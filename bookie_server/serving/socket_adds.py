"""A connection of adds: frames in, each whole and its size in front of it, and answers out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from bookie_server.carrier.connection import Connection, new_body
from bookie_server.carrier.taking import receive_untaken
from bookie_server.memory.frames import FramesInProgress
from bookie_server.serving.adds import FrameCarrier
from bookie_server.wire.buffer import Buffer
from bookie_server.wire.codec import MalformedFrameError
from bookie_server.wire.envelope import Head, Kind
from bookie_server.wire.limits import PIECE_SIZE_MIN, USUAL_SIZE_MAX


class AddConnection(FrameCarrier):
    """For use on one event loop."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def next(
        self, in_progress: FramesInProgress, take_at_once: Callable[[Buffer], bool]
    ) -> Buffer | None:
        memory_for = partial(_memory_for, in_progress)
        message = await receive_untaken(self._connection, memory_for, take_at_once)
        if message is None:
            return None
        head, frame = message
        if head.kind is not Kind.FRAME:
            raise MalformedFrameError(f"a {head.kind.name} among adds")
        if frame is not None:
            return frame
        # Usual ones are free of what others announce and do not send.
        if head.size_bytes <= USUAL_SIZE_MAX:
            await in_progress.expect(head.size_bytes)
            return await self._connection.receive_body(head.size_bytes)
        await in_progress.announce(head.size_bytes)
        frame = new_body(head.size_bytes)
        async with asyncio.timeout(None) as limit:
            for begin in range(0, len(frame), PIECE_SIZE_MIN):
                in_progress.begin_await(partial(limit.reschedule, 0))
                await self._connection.fill(frame[begin : begin + PIECE_SIZE_MIN])
                in_progress.end_await()
        return frame

    async def send(self, answers: bytes) -> None:
        self._send(answers)
        await self.drain()

    async def drain(self) -> None:
        await self._connection.drain()

    @property
    def send_now(self) -> Callable[[bytes], None] | None:
        return None if self._connection.unsent_bytes else self._send

    def _send(self, answers: bytes) -> None:
        self._connection.send(Kind.WRITE_REPLY, (answers,))


def _memory_for(in_progress: FramesInProgress, head: Head) -> memoryview | None:
    """Memory for a frame that need not wait for its room."""
    is_usual = head.kind is Kind.FRAME and head.size_bytes <= USUAL_SIZE_MAX
    return (
        new_body(head.size_bytes) if is_usual and in_progress.try_expect(head.size_bytes) else None
    )
