"""BookieClient for a process that gRPC does not work in: a process of its own speaks gRPC for it.

A child forked from a process that used gRPC inherits its locks and none of its threads (see
:mod:`bookie_server.client.grpc_client`). It starts this module as a fresh program, one per bookie,
and passes requests and answers over a socket pair. The relay decides nothing: it calls the same
client with the same values. When it dies, what was not answered is unreachable and the next request
starts another; when its owner dies, the socket closes and the relay ends.

Messages are pickles behind their length. Both ends are the same program on the same machine and the
socket has no name, so nobody else can send one.
"""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import socket
import struct
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from bookie_server.client.grpc_client import GrpcBookieClient
from bookie_server.client.interface import BookieClient
from bookie_server.client.read_stream import unreachable
from bookie_server.client.settings import ConnectionSettings
from bookie_server.wire.messages import (
    BookieInfo,
    EncodedSection,
    EntryList,
    ReadLacReply,
    ReadLacRequest,
    ReadReply,
    ReadRequest,
    Status,
    StoredReply,
)
from bookie_server.wire.record import parse_run
from bookkeeper_metadata.foundation.tasks import end_tasks, settle
from bookkeeper_metadata.foundation.tls.settings import TlsFiles

_LOGGER = logging.getLogger(__name__)
_SIZE = struct.Struct(">I")
_CANCEL = "cancel"
_START_ALLOWANCE_S = 10.0
"""Time a relay may need to start, on top of the bookie's own time limits."""


class RelayedBookieClient(BookieClient):
    """Owns the relay process, and starts it on first use; use it on one event loop only."""

    def __init__(
        self,
        bookie_id: str,
        address: str,
        settings: ConnectionSettings,
        cluster_id: str = "",
        tls_files: TlsFiles | None = None,
    ) -> None:
        self.bookie_id = bookie_id
        self._hello = _message((bookie_id, address, settings, cluster_id, tls_files))
        limit_ms = max(settings.add_timeout_ms, settings.read_timeout_ms)
        self._timeout_s = limit_ms / 1000 + _START_ALLOWANCE_S
        self._loop = asyncio.get_running_loop()
        self._unsent: asyncio.Queue[bytes] = asyncio.Queue()
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._request_id = 0
        self._runner: asyncio.Task[None] | None = None
        self._is_closed = False

    def write(self, section: EncodedSection, done: Callable[[Status], None]) -> None:
        answered = self._ask("write", section)
        answered.add_done_callback(lambda future: done(future.result() or Status.UNREACHABLE))

    async def read(self, request: ReadRequest) -> ReadReply:
        reply: StoredReply | None = await self._ask("read", request)
        if reply is None:
            return unreachable(request)
        runs = tuple(parse_run(chunk) for chunk in reply.chunks)
        return ReadReply(runs, reply.missing, reply.last_add_confirmed)

    async def read_lac(self, request: ReadLacRequest) -> ReadLacReply:
        reply = await self._ask("read_lac", request, waits_ms=request.waits_ms)
        return reply or ReadLacReply(Status.UNREACHABLE)

    async def write_lac(self, ledger_id: int, master_key: bytes, packet: bytes) -> Status:
        return await self._ask("write_lac", ledger_id, master_key, packet) or Status.UNREACHABLE

    async def info(self) -> BookieInfo | None:
        info: BookieInfo | None = await self._ask("info")
        return info

    async def list_page(self, ledger_id: int, first_entry: int) -> EntryList:
        page = await self._ask("list_page", ledger_id, first_entry)
        return page or EntryList(Status.UNREACHABLE)

    async def close(self) -> None:
        self._is_closed = True
        if self._runner is not None:
            await end_tasks([self._runner])
        self._abandon()

    def _ask(self, method: str, *arguments: object, waits_ms: int = 0) -> asyncio.Future[Any]:
        """Return what the relay's client returned, ``None`` when there is no answer.

        ``waits_ms`` is how long the bookie may hold the reply back, on top of the usual time limit.
        """
        future: asyncio.Future[Any] = self._loop.create_future()
        if self._is_closed:
            future.set_result(None)
            return future
        self._request_id += 1
        request_id = self._request_id
        self._waiting[request_id] = future
        timer = self._loop.call_later(self._timeout_s + waits_ms / 1000, settle, future, None)

        def forget(answered: asyncio.Future[Any]) -> None:
            timer.cancel()
            self._waiting.pop(request_id, None)
            # The caller gave up: the relay and the bookie need not work for it any longer.
            if answered.cancelled():
                self._unsent.put_nowait(_message((request_id, _CANCEL, ())))

        future.add_done_callback(forget)
        self._unsent.put_nowait(_message((request_id, method, arguments)))
        if self._runner is None or self._runner.done():
            self._runner = self._loop.create_task(self._run(), name="bookie-relay")
        return future

    async def _run(self) -> None:
        """One relay's life; the next request after its end starts another."""
        try:
            process, reader, writer = await _start()
        except OSError as error:
            _LOGGER.warning("no relay. bookie_id=%s detail=%s", self.bookie_id, error)
            self._abandon()
            return
        writer.write(self._hello)
        sender = self._loop.create_task(self._send(writer), name="bookie-relay-sender")
        try:
            while (message := await _receive(reader)) is not None:
                request_id, answer = message
                if request_id in self._waiting:
                    settle(self._waiting[request_id], answer)
        finally:
            await end_tasks([sender])
            writer.close()
            if process.returncode is None:
                process.kill()  # every request it still has is answered "unreachable" below
            await process.wait()
            # Last, with no await behind it: a caller that gets its answer may ask again at once, and
            # must find this runner done.
            self._abandon()

    async def _send(self, writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(await self._unsent.get())
            await writer.drain()

    def _abandon(self) -> None:
        while not self._unsent.empty():
            self._unsent.get_nowait()
        for future in list(self._waiting.values()):
            settle(future, None)


async def serve(channel: socket.socket) -> None:
    """Answer the owner at the other end of ``channel`` until it closes it."""
    reader, writer = await asyncio.open_connection(sock=channel)
    hello = await _receive(reader)
    if hello is None:
        writer.close()
        return
    client = GrpcBookieClient(*hello)
    answering: dict[int, asyncio.Task[None]] = {}
    try:
        while (message := await _receive(reader)) is not None:
            request_id, method, arguments = message
            if method == "write":
                # Called here, not in a task: sections go out in the order they came.
                (section,) = arguments
                client.write(section, partial(_answer, writer, request_id))
            elif method == _CANCEL:
                if request_id in answering:
                    answering[request_id].cancel()
            else:
                task = asyncio.create_task(_call(client, writer, request_id, method, arguments))
                answering[request_id] = task
                # Called with the task, which ``pop`` takes for the value of a missing key.
                task.add_done_callback(partial(answering.pop, request_id))
    finally:
        await end_tasks(answering.values())
        await client.close()
        writer.close()


async def _call(
    client: BookieClient,
    writer: asyncio.StreamWriter,
    request_id: int,
    method: str,
    arguments: tuple[Any, ...],
) -> None:
    answer: Any = await getattr(client, method)(*arguments)
    if isinstance(answer, ReadReply):
        # Runs are views into a frame, which do not pickle.
        chunks = tuple(bytes(run.data) for run in answer.runs)
        answer = StoredReply(chunks, answer.missing, answer.last_add_confirmed)
    _answer(writer, request_id, answer)


def _answer(writer: asyncio.StreamWriter, request_id: int, answer: object) -> None:
    if not writer.is_closing():
        writer.write(_message((request_id, answer)))


async def _start() -> tuple[asyncio.subprocess.Process, asyncio.StreamReader, asyncio.StreamWriter]:
    ours, theirs = socket.socketpair()
    # The relay must find the packages this process found, wherever they came from.
    path = os.pathsep.join(part for part in sys.path if part)
    try:
        # Closed here once the relay has it: while this process held that end too, it
        # would never see the relay's death as the end of the stream.
        with theirs:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "bookie_server.client.relay", str(theirs.fileno())),
                pass_fds=(theirs.fileno(),),
                stdin=asyncio.subprocess.DEVNULL,
                # And none that is only in the current folder.
                env={**os.environ, "PYTHONPATH": path, "PYTHONSAFEPATH": "1"},
            )
        return process, *await asyncio.open_connection(sock=ours)
    except BaseException:
        ours.close()
        raise


async def _receive(reader: asyncio.StreamReader) -> Any | None:
    """The next message; ``None`` when the other end is gone."""
    try:
        (size,) = _SIZE.unpack(await reader.readexactly(_SIZE.size))
        return pickle.loads(await reader.readexactly(size))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


def _message(content: object) -> bytes:
    body = pickle.dumps(content, pickle.HIGHEST_PROTOCOL)
    return _SIZE.pack(len(body)) + body


if __name__ == "__main__":
    asyncio.run(serve(socket.socket(fileno=int(sys.argv[1]))))
