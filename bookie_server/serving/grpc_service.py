"""A bookie over gRPC: generic handlers over raw bytes.

What cannot be answered ends its stream, or its request: INVALID_ARGUMENT for what does not parse,
RESOURCE_EXHAUSTED for a stream that keeps room others need.

gRPC's flow control stops a client whose messages are not read. See :mod:`bookie_server.memory.frames`.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

import grpc
import grpc.aio

from bookie_server.memory.budget import Room
from bookie_server.memory.connections import Connections
from bookie_server.memory.frames import FramesInProgress
from bookie_server.serving.acceptor import HANDSHAKE_WITHIN_S
from bookie_server.serving.adds import FrameCarrier
from bookie_server.serving.refusal import RefusedError
from bookie_server.serving.service import BookieService
from bookie_server.wire.buffer import Buffer
from bookie_server.wire.codec import MalformedFrameError
from bookie_server.wire.envelope import Reason
from bookie_server.wire.limits import FRAME_SIZE_MAX, PIECE_SIZE_MAX
from bookie_server.wire.messages import Method
from bookie_server.wire.pieces import Pieces, is_piece

SERVICE = "bookkeeper.Bookie"
_LOGGER = logging.getLogger(__name__)

SERVER_OPTIONS = (
    ("grpc.max_receive_message_length", PIECE_SIZE_MAX),
    ("grpc.max_send_message_length", FRAME_SIZE_MAX),
    # Two bookies on one port would each get half of the clients.
    ("grpc.so_reuseport", 0),
    ("grpc.max_concurrent_streams", 1_000),
    # Who says nothing, or does not come to terms over TLS, is sent away as by the other carriers.
    ("grpc.server_handshake_timeout_ms", int(HANDSHAKE_WITHIN_S * 1000)),
    # Probing would let a stream that nobody reads take in megabytes instead of 64 KiB.
    ("grpc.http2.bdp_probe", 0),
)
_PART_OF_SUBJECT = re.compile(rb"(?:[^\\,+]|\\.)+", re.DOTALL)
_ESCAPED = re.compile(rb"\\(?:([0-9A-Fa-f]{2})|(.))", re.DOTALL)
_CODES = {
    Reason.MALFORMED: grpc.StatusCode.INVALID_ARGUMENT,
    Reason.NO_ROOM: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Reason.NOT_MEANT: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.NOT_ALLOWED: grpc.StatusCode.PERMISSION_DENIED,
}


class GrpcService:
    """Handlers of bookie.proto's methods; ``port`` is that of the connections, to end some of them."""

    def __init__(self, service: BookieService, port: int | None = None) -> None:
        self._service = service
        self._clients = Connections(port)

    def handler(self) -> grpc.GenericRpcHandler:
        """The handlers to add to a ``grpc.aio.server``."""
        stream, unary = grpc.stream_stream_rpc_method_handler, grpc.unary_unary_rpc_method_handler
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "Write": stream(self._write),
                "Read": stream(self._read),
                **{method.value: unary(partial(self._answer, method)) for method in Method},
            },
        )

    async def _write(self, frames: AsyncIterator[bytes], context: Any) -> None:
        try:
            self._authorize(context)
            await self._service.serve_adds(context.peer(), _AddCall(aiter(frames), context.write))
        except RefusedError as refused:
            await _abort(context, refused)

    async def _read(self, requests: AsyncIterator[bytes], context: Any) -> None:
        disconnect = partial(self._clients.disconnect, context.peer())
        writing = asyncio.Lock()

        async def send(_: int, parts: Sequence[Buffer], room: Room | None) -> None:
            (frame,) = parts
            # A call takes one message at a time.
            async with writing:
                if room is not None:
                    room.lend(disconnect)
                await context.write(frame)

        try:
            self._authorize(context)
        except RefusedError as refused:
            await _abort(context, refused)
        reads = self._service.reads(context.peer(), send)
        refusal: RefusedError | None = None
        try:
            try:
                async for data in requests:
                    await reads.take(data)
            except MalformedFrameError as error:
                refusal = self._service.malformed(error)
            # gRPC loses a call that ends while a message is on its way.
            await reads.finish()
            if refusal is not None:
                await _abort(context, refusal)
        finally:
            await reads.close()

    async def _answer(self, method: Method, data: bytes, context: Any) -> bytes:
        room = self._service.room_for_reply(context.peer())
        # The reply is sent behind this method's end.
        context.add_done_callback(lambda _: room.release())
        try:
            self._authorize(context, method)
            reply = await self._service.answer(method, data, room)
        except RefusedError as refused:
            await _abort(context, refused)
            # Never reached, since ``abort`` raises; it says so to the type checker.
            raise
        if room.size_bytes:
            room.lend(partial(self._clients.disconnect, context.peer()))
        return reply

    def _authorize(self, context: Any, method: Method | None = None) -> None:
        # Without roles a call is not asked for what nobody looks at.
        if self._service.has_roles:
            name = _common_name(context.auth_context())
            self._service.authorize(context.peer(), name, method)


class _AddCall(FrameCarrier):
    """One call; larger frames come in pieces."""

    send_now = None  # a call is written to by coroutines only

    def __init__(
        self, unread: AsyncIterator[bytes], write: Callable[[bytes], Awaitable[None]]
    ) -> None:
        self._unread = unread
        self._write = write

    async def send(self, answers: bytes) -> None:
        await self._write(answers)

    async def drain(self) -> None:
        """Nothing: a message is on its way once it is written."""

    async def next(
        self, in_progress: FramesInProgress, take_at_once: Callable[[Buffer], bool]
    ) -> bytes | None:
        await in_progress.expect()
        data = await anext(self._unread, None)
        if data is not None and is_piece(data):
            return await self._take_others(Pieces(data), in_progress)
        return data

    async def _take_others(self, pieces: Pieces, in_progress: FramesInProgress) -> bytes | None:
        """Read the pieces behind a frame's first once there is room for them; ``None`` if they end."""
        await in_progress.announce(pieces.size_bytes)
        async with asyncio.timeout(None) as limit:
            while pieces.missing_bytes:
                in_progress.begin_await(partial(limit.reschedule, 0))
                piece = await anext(self._unread, None)
                in_progress.end_await()
                if piece is None:
                    return None
                pieces.add(piece)
        return pieces.join()


def _common_name(known: Mapping[str, Sequence[bytes]]) -> str:
    """Of the client's certificate; empty: it has none, or none that is one name.

    gRPC tells the first of several, and that only up to a NUL: so it must be the whole of what the subject says.
    """
    names, subjects = known.get("x509_common_name", ()), known.get("x509_subject", ())
    if not names or len(subjects) != 1:
        return ""
    of_names = [
        _unescaped(part.removeprefix(b"CN="))
        for part in _PART_OF_SUBJECT.findall(subjects[0])
        if part.startswith(b"CN=")
    ]
    return names[0].decode(errors="replace") if of_names == [names[0]] else ""


def _unescaped(value: bytes) -> bytes:
    """What a value in a subject stands for. Source: RFC 2253, 2.4."""
    return _ESCAPED.sub(
        lambda found: bytes.fromhex(found[1].decode()) if found[1] else found[2], value
    )


async def _abort(context: Any, refused: RefusedError) -> None:
    # What somebody may not do is told in the audit's own log.
    if refused.reason is not Reason.NOT_ALLOWED:
        _LOGGER.warning("stream or request refused. peer=%s detail=%s", context.peer(), refused)
    await context.abort(_CODES[refused.reason], refused.detail)
