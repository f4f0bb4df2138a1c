"""A bookie that speaks Apache's protocol behind a port, and one end of such a connection in a test's hands."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bookie_server.bookie import Bookie
from bookie_server.carrier.sockets import listen
from bookie_server.serving.rpc.service import RpcService
from bookie_server.serving.service import BookieService
from bookie_server.wire.messages import BookieInfo
from bookkeeper_metadata.foundation.tasks import end_tasks
from tests.doubles.served_sockets import room_held
from tests.doubles.storage import running_bookie
from tests.patience import seconds

LIMIT_S = 30.0
OWN = BookieInfo("b:1", "cluster-1")


@dataclass
class RpcPeer:
    """Sends any bytes, and takes frames only when it is told to."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, *parts: bytes) -> None:
        async with asyncio.timeout(seconds(LIMIT_S)):
            self.writer.write(b"".join(parts))
            await self.writer.drain()

    async def receive(self) -> bytes | None:
        """The next frame, with its length; ``None``: the bookie has ended the connection."""
        async with asyncio.timeout(seconds(LIMIT_S)):
            try:
                length = await self.reader.readexactly(4)
                return length + await self.reader.readexactly(int.from_bytes(length))
            except (asyncio.IncompleteReadError, ConnectionError):
                return None

    async def ask(self, frame: bytes) -> bytes | None:
        """What comes for a frame."""
        await self.send(frame)
        return await self.receive()

    async def close(self) -> None:
        self.writer.close()


@dataclass
class ServedRpc:
    """A bookie behind a port."""

    bookie: Bookie
    service: BookieService
    rpc: RpcService
    host: str
    port: int
    peers: list[RpcPeer] = field(default_factory=list)

    async def connect(self) -> RpcPeer:
        peer = RpcPeer(*await asyncio.open_connection(self.host, self.port))
        self.peers.append(peer)
        return peer

    @property
    def used_bytes(self) -> int:
        """Room that clients hold."""
        return room_held(self.service)


@asynccontextmanager
async def serving_rpc(
    place: Path, connections_max: int = 20, **settings: int
) -> AsyncIterator[ServedRpc]:
    """Serve a bookie at ``place``."""
    async with running_bookie(place, **settings) as bookie:
        service = BookieService(bookie, OWN, str(place))
        rpc = RpcService(service, connections_max=connections_max)
        with listen("127.0.0.1", 0) as listener:
            accepting = asyncio.create_task(rpc.run(listener))
            host, port = listener.getsockname()
            served = ServedRpc(bookie, service, rpc, host, port)
            try:
                yield served
            finally:
                for peer in served.peers:
                    await peer.close()
                await end_tasks([accepting])
                await rpc.stop()
