"""The stream of reads to one bookie: requests out as they come, replies in any order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import grpc

from bookie_server.wire import codec
from bookie_server.wire.messages import IdRange, ReadReply, ReadRequest, Status
from bookkeeper_metadata.foundation.tasks import end_tasks, settle


def unreachable(request: ReadRequest) -> ReadReply:
    """The outcome of a read without an answer: nothing is known about any of its ids."""
    missing = (IdRange(request.first_entry, request.last_entry, Status.UNREACHABLE),)
    return ReadReply((), missing, -1)


class ReadStream:
    """One per bookie; all methods run on its event loop."""

    def __init__(self, open_call: Callable[[], Any], timeout_ms: int) -> None:
        self._open_call = open_call
        self._timeout_s = timeout_ms / 1000
        self._loop = asyncio.get_running_loop()
        self._unsent: asyncio.Queue[bytes] = asyncio.Queue()
        self._waiting: dict[int, asyncio.Future[ReadReply | None]] = {}
        self._request_id = 0
        self._runner: asyncio.Task[None] | None = None

    async def read(self, request: ReadRequest) -> ReadReply:
        """See :meth:`bookie_server.client.interface.BookieClient.read`."""
        self._request_id += 1
        request_id = self._request_id
        future: asyncio.Future[ReadReply | None] = self._loop.create_future()
        self._waiting[request_id] = future
        self._unsent.put_nowait(codec.encode_read_request(request_id, request))
        if self._runner is None or self._runner.done():
            self._runner = self._loop.create_task(self._run(), name="bookie-read-stream")
        timer = self._loop.call_later(self._timeout_s, settle, future, None)
        try:
            return await future or unreachable(request)
        finally:
            timer.cancel()
            self._waiting.pop(request_id, None)

    async def close(self) -> None:
        """Reads still waiting come back unreachable."""
        if self._runner is not None:
            await end_tasks([self._runner])
        self._abandon()

    async def _run(self) -> None:
        """Serve reads over one connection until it ends; the next read starts another."""
        call = self._open_call()
        sender = self._loop.create_task(self._send(call), name="bookie-read-sender")
        try:
            while True:
                data = await call.read()
                if data is grpc.aio.EOF:
                    break
                request_id, reply = codec.parse_read_reply(data)
                # Its caller may have given up meanwhile.
                if request_id in self._waiting:
                    settle(self._waiting[request_id], reply)
        except (grpc.RpcError, codec.MalformedFrameError):
            pass  # every waiting read comes back unreachable, below
        finally:
            call.cancel()
            await end_tasks([sender])
            # Behind the last await: what was asked for while the sender ended is answered as well.
            self._abandon()

    async def _send(self, call: Any) -> None:
        while True:
            await call.write(await self._unsent.get())

    def _abandon(self) -> None:
        while not self._unsent.empty():
            self._unsent.get_nowait()
        for future in self._waiting.values():
            settle(future, None)
