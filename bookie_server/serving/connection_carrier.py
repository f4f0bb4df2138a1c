"""ConnectionCarrier: frames of adds and their answers by way of a connection of our own, whatever their layout."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable
from functools import partial

from bookie_server.carrier.connection import Connection, new_body
from bookie_server.memory.frames import FramesInProgress
from bookie_server.serving.adds import AddCarrier, F
from bookie_server.wire.limits import PIECE_SIZE_MIN, USUAL_SIZE_MAX


class ConnectionCarrier(AddCarrier[F]):
    """For use on one event loop."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def send(self, answers: bytes) -> None:
        self._send(answers)
        await self.drain()

    async def drain(self) -> None:
        await self._connection.drain()

    @property
    def send_now(self) -> Callable[[bytes], None] | None:
        return None if self._connection.unsent_bytes else self._send

    @abstractmethod
    def _send(self, answers: bytes) -> None:
        """Send a message of answers; what is not taken at once is sent as soon as it is."""

    async def _receive_promised(
        self, in_progress: FramesInProgress, size_bytes: int, begun: bytes = b""
    ) -> memoryview:
        """A frame of known size, of which ``begun`` has come, once there is room for it.

        Raises:
            ConnectionEndedError: not all of it came.
            TimeoutError: the client does not send the rest, and others need the room.
        """
        is_usual = size_bytes <= USUAL_SIZE_MAX
        # Usual ones are free of what others announce and do not send.
        if is_usual:
            await in_progress.expect(size_bytes, self._connection)
        else:
            await in_progress.announce(size_bytes)
        frame = new_body(size_bytes)
        frame[: len(begun)] = begun
        missing = frame[len(begun) :]
        if is_usual:
            await self._connection.fill(missing)
            return frame
        async with asyncio.timeout(None) as limit:
            for begin in range(0, len(missing), PIECE_SIZE_MIN):
                in_progress.begin_await(partial(limit.reschedule, 0))
                await self._connection.fill(missing[begin : begin + PIECE_SIZE_MIN])
                in_progress.end_await()
        return frame
