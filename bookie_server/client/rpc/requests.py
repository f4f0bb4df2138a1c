"""Streams of requests to one of Apache's bookies that are no adds: one of version 3, and one of batch reads in version 2."""

from __future__ import annotations

from dataclasses import replace

from bookie_server.carrier.connection import Connection
from bookie_server.client.request_stream import RequestStream
from bookie_server.wire.rpc import messages, v2, v3
from bookie_server.wire.rpc.frames import LENGTH_SIZE, parse_length


async def receive_frame(connection: Connection) -> memoryview | None:
    """The next frame, without its length; ``None``: the bookie has ended the connection between two.

    Raises:
        ConnectionEndedError: it has ended otherwise.
        MalformedFrameError: what comes is no frame.
    """
    front = memoryview(bytearray(LENGTH_SIZE))
    count = await connection.receive_some(front)
    if not count:
        return None
    await connection.fill(front[count:])
    return await connection.receive_body(parse_length(front))


class Questions(RequestStream[tuple[messages.Request, int], v3.Answer]):
    """Of version 3; a request comes with its priority."""

    def _send(
        self, connection: Connection, number: int, request: tuple[messages.Request, int]
    ) -> None:
        asked, priority = request
        connection.write(v3.encode_request(number, asked, priority))

    async def _receive(self, connection: Connection) -> bool:
        frame = await receive_frame(connection)
        if frame is None:
            return False
        answer = v3.parse_answer(frame)
        self._answer(answer.head.number, answer)
        return True


class Batches(RequestStream[messages.BatchRead, v2.Answer]):
    """Of version 2, whose batch reads have a number."""

    def _send(self, connection: Connection, number: int, request: messages.BatchRead) -> None:
        connection.write(v2.encode_request(replace(request, number=number)))

    async def _receive(self, connection: Connection) -> bool:
        frame = await receive_frame(connection)
        if frame is None:
            return False
        answer = v2.parse_answer(frame)
        if isinstance(answer.reply, messages.BatchReply):
            self._answer(answer.reply.number, answer)
        return True
