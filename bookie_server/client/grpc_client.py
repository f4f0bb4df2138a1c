"""BookieClient over gRPC: one channel, one stream of adds, one stream of reads, a few calls.

gRPC's asyncio core does not survive ``fork``: in a child of a process that used it nothing answers,
and with its own fork handlers on even the parent crashes (grpcio 1.74 and 1.85, both tried). So
those handlers are switched off, and a child forked after the first connection must not use this
class but :mod:`bookie_server.client.relay`. A child of a process that had not connected yet is fine:
that is how Spark's workers come about.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")  # read once, when grpc is imported

import grpc
import grpc.aio

from bookie_server.client.calling import CallingBookieClient
from bookie_server.client.message_stream import MessageStream, StreamEndedError
from bookie_server.client.read_stream import ReadStream, unreachable
from bookie_server.client.settings import ConnectionSettings
from bookie_server.client.write_stream import WriteStream
from bookie_server.wire.addressee import encode_addressee
from bookie_server.wire.buffer import Buffer
from bookie_server.wire.limits import FRAME_SIZE_MAX
from bookie_server.wire.messages import EncodedSection, Method, ReadReply, ReadRequest, Status
from bookie_server.wire.pieces import messages_of
from bookkeeper_metadata.foundation.invariant import invariant
from bookkeeper_metadata.foundation.tasks import end_tasks
from bookkeeper_metadata.foundation.tls.contexts import Tls, tls_of
from bookkeeper_metadata.foundation.tls.settings import TlsFiles

_LOGGER = logging.getLogger(__name__)
SERVICE = "bookkeeper.Bookie"
CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", FRAME_SIZE_MAX),
    ("grpc.max_send_message_length", FRAME_SIZE_MAX),
    # Own connections: a client that is closed must not leave its socket to another one's fate.
    ("grpc.use_local_subchannel_pool", 1),
    # Bookies are addressed directly; a proxy of the environment is meant for something else.
    ("grpc.enable_http_proxy", 0),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 500),
)

_ATTEMPT_MS_MAX = 10_000
"""Longest that an attempt to connect is waited for; one that got lost on its way is made anew then."""
_FORMER_KEPT_S = 60.0
"""How long calls of a channel may go on whose certificate has been replaced."""

_grpc_pids: list[int] = []
"""The process that used gRPC first; its children inherit the list."""


def grpc_works_here() -> bool:
    """Whether this process may use gRPC: no process that it was forked from has used it before."""
    return not _grpc_pids or _grpc_pids[0] == os.getpid()


class GrpcBookieClient(CallingBookieClient):
    """Connects on first use; must be made and used on one event loop.

    Whoever answers at the address and is not this bookie, of the cluster with this id, is no answer.
    """

    def __init__(
        self,
        bookie_id: str,
        address: str,
        settings: ConnectionSettings,
        cluster_id: str = "",
        tls_files: TlsFiles | None = None,
    ) -> None:
        """Raises :class:`TlsFilesError`."""
        invariant(grpc_works_here(), "gRPC hangs in a process forked from one that used it")
        _grpc_pids[:] = [os.getpid()]
        super().__init__(bookie_id, settings)
        self._addressee = encode_addressee(bookie_id, cluster_id)
        self._is_refused = False
        attempt_ms = min(settings.reconnect_timeout_ms, _ATTEMPT_MS_MAX)
        self._channels = _Channels(address, tls_of(tls_files), attempt_ms)
        open_writes = self._stream("Write")

        async def open_stream() -> MessageStream:
            return WriteCall(open_writes())

        self._writes = WriteStream(open_stream, settings, bookie_id)
        self._reads = ReadStream(self._stream("Read"), settings.read_timeout_ms)

    def write(self, section: EncodedSection, done: Callable[[Status], None]) -> None:
        self._writes.write(section, done)

    async def read(self, request: ReadRequest) -> ReadReply:
        if self._is_closed:
            return unreachable(request)
        return await self._reads.read(request)

    async def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            await asyncio.gather(self._writes.close(), self._reads.close())
            await self._channels.close()

    def _stream(self, method: str) -> Callable[[], Any]:
        def open_call() -> Any:
            call = self._channels.current().stream_stream(f"/{SERVICE}/{method}")
            return call(metadata=self._addressee)

        return open_call

    async def _call(self, method: Method, request: bytes, timeout_s: float) -> bytes | None:
        call = self._channels.current().unary_unary(f"/{SERVICE}/{method.value}")
        try:
            reply = await call(request, timeout=timeout_s, metadata=self._addressee)
        except grpc.RpcError as error:
            self._note(error)
            return None
        except asyncio.CancelledError:
            if _is_cancelled():
                raise
            return None
        return bytes(reply)

    def _note(self, error: Any) -> None:
        """Say once that the bookie lets nobody do anything who has this certificate: it will not change by itself."""
        is_refusal = error.code() is grpc.StatusCode.PERMISSION_DENIED
        if is_refusal and not self._is_refused:
            self._is_refused = True
            _LOGGER.warning(
                "a bookie and this client do not agree. bookie_id=%s detail=%.300r",
                self.bookie_id,
                error.details(),
            )


def _is_cancelled() -> bool:
    """Whether this task is; gRPC says so, too, of a call that was cancelled by ``close``, or with its channel."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


class _Channels:
    """One channel; another once other files of TLS are in force, which a channel never hears of."""

    def __init__(self, address: str, tls: Tls | None, attempt_ms: int) -> None:
        self._address = address
        # Not the pause between two attempts, as its name says, but the time that an attempt has.
        self._options = (*CHANNEL_OPTIONS, ("grpc.min_reconnect_backoff_ms", attempt_ms))
        self._tls = tls
        self._channel = self._make()
        self._generation = 0 if tls is None else tls.generation
        self._closing: set[asyncio.Task[None]] = set()

    def current(self) -> grpc.aio.Channel:
        """To begin a call on."""
        if self._tls is not None:
            self._tls.look()
            if self._generation != self._tls.generation:
                former, self._channel = self._channel, self._make()
                self._generation = self._tls.generation
                closing = asyncio.create_task(former.close(_FORMER_KEPT_S), name="former-channel")
                self._closing.add(closing)
                closing.add_done_callback(self._closing.discard)
        return self._channel

    async def close(self) -> None:
        await end_tasks(self._closing)
        await self._channel.close()

    def _make(self) -> grpc.aio.Channel:
        if self._tls is None:
            return grpc.aio.insecure_channel(self._address, options=self._options)
        pem = self._tls.pem()
        credentials = grpc.ssl_channel_credentials(pem.trust, pem.key, pem.certificate)
        return grpc.aio.secure_channel(self._address, credentials, options=self._options)


class WriteCall(MessageStream):
    """A stream of adds over one call."""

    def __init__(self, call: Any) -> None:
        self._call = call
        self._unsent: asyncio.Queue[bytes] = asyncio.Queue()
        self._unsent_bytes = 0
        self._sender = asyncio.create_task(self._send(), name="bookie-write-sender")

    @property
    def unsent_bytes(self) -> int:
        return self._unsent_bytes

    def send(self, sections: Sequence[EncodedSection]) -> None:
        # Alone, a section is the same bytes object for every bookie of the write set.
        parts = [section.data for section in sections]
        frame = parts[0] if len(parts) == 1 else b"".join(parts)
        self._unsent_bytes += len(frame)
        self._unsent.put_nowait(frame)

    async def receive(self, take_at_once: Callable[[Buffer], bool]) -> bytes:
        try:
            data = await self._call.read()
        except grpc.RpcError as error:
            full = grpc.StatusCode.RESOURCE_EXHAUSTED
            is_for_room = isinstance(error, grpc.aio.AioRpcError) and error.code() is full
            raise StreamEndedError(str(error), is_for_room=is_for_room) from error
        except asyncio.CancelledError:
            if _is_cancelled():
                raise
            raise StreamEndedError("closed") from None
        if data is grpc.aio.EOF:
            raise StreamEndedError("the bookie ended the stream")
        return bytes(data)

    def close(self) -> None:
        self._sender.cancel()
        self._call.cancel()

    async def _send(self) -> None:
        # A call that broke says so in ``receive``.
        with suppress(grpc.RpcError, asyncio.InvalidStateError):
            while True:
                # Nothing else may come between the pieces of a frame. A stream
                # that ends in the middle of one is opened anew.
                frame = await self._unsent.get()
                for message in messages_of(frame):
                    await self._call.write(message)
                self._unsent_bytes -= len(frame)
