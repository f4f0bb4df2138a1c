"""A proxy in front of a real ZooKeeper that loses one chosen message and its connection with it.

It knows just enough of the protocol: every message is a length and that many bytes; a request begins
with its xid and its type, a reply with the xid.
"""

from __future__ import annotations

import asyncio
import struct
from contextlib import suppress
from enum import IntEnum

from metadata.memory import Fault
from metadata.zookeeper import ZooKeeperStore

_HEAD = struct.Struct(">ii")
_LENGTH = struct.Struct(">i")


class Request(IntEnum):
    """ZooKeeper's numbers of the requests that change something."""

    CREATE = 1
    DELETE = 2
    SET_DATA = 5
    MULTI = 14


class LossyProxy:
    """Listens on loopback; :meth:`lose` arms it for the next request of one type."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._server: asyncio.Server | None = None
        self._armed: tuple[Request, Fault] | None = None
        self._doomed_xid: int | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._writers: list[asyncio.StreamWriter] = []
        self.losses = 0

    async def start(self) -> int:
        """Returns the port to connect to."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Close every connection; returns when nothing of the proxy is left.

        Nothing is cancelled: cancelling a task inside ``wait_closed`` cancels the stream's own
        future, which everyone else waits for. A closed connection ends its pumps by itself.
        """
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()
        for writer in self._writers:
            writer.close()
        await asyncio.gather(*self._tasks)
        for writer in self._writers:
            with suppress(OSError):
                await writer.wait_closed()

    def lose(self, request: Request, fault: Fault) -> None:
        """Lose the next message of this type on its way there or back."""
        self._armed = (request, fault)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        self._tasks.append(asyncio.create_task(self._serve(reader, writer)))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError:
            writer.close()
            return
        self._writers.append(server_writer)
        self._doomed_xid = None
        pumps = [
            asyncio.create_task(self._pump_requests(reader, server_writer)),
            asyncio.create_task(self._pump_replies(server_reader, writer)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            writer.close()
            server_writer.close()

    async def _pump_requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        await _forward(await _message(reader), writer)  # the handshake has no head
        while True:
            message = await _message(reader)
            xid, kind = _HEAD.unpack_from(message)
            if self._armed is not None and kind == self._armed[0]:
                fault = self._armed[1]
                self._armed = None
                self.losses += 1
                if fault is Fault.LOST_REQUEST:
                    return
                self._doomed_xid = xid
            await _forward(message, writer)

    async def _pump_replies(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        await _forward(await _message(reader), writer)
        while True:
            message = await _message(reader)
            if _LENGTH.unpack_from(message)[0] == self._doomed_xid:
                return
            await _forward(message, writer)


async def _message(reader: asyncio.StreamReader) -> bytes:
    size = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))[0]
    return await reader.readexactly(size)


async def _forward(message: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(_LENGTH.pack(len(message)) + message)
    await writer.drain()


async def connect_through(proxy: LossyProxy) -> ZooKeeperStore:
    """A store whose messages pass the proxy."""
    port = await proxy.start()
    return await ZooKeeperStore.connect([f"127.0.0.1:{port}"], session_timeout_ms=4_000)
