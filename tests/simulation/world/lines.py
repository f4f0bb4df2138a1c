"""Plain sockets between the processes of a world: the product's carrier at both ends, the world's network in between.

What :mod:`tests.simulation.world.network` does to messages it does to bytes here, as far as TCP lets it: they
come late and in parts of any size, wait while an edge is cut, and never come twice or out of order. A
connection ends with its process: the other end hears it at once, or, where a machine went with it, only when the
kernel has given up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum, unique
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from bookie_server.carrier.byte_stream import ByteStream
from bookie_server.client.interface import BookieClient
from bookie_server.client.rpc.client import RpcBookieClient
from bookie_server.client.settings import ConnectionSettings
from bookie_server.client.socket_client import SocketBookieClient
from bookie_server.serving.acceptor import Acceptor
from bookie_server.serving.rpc.service import RpcService
from bookie_server.serving.service import BookieService
from bookie_server.serving.socket_service import SocketService
from bookie_server.wire.messages import BookieInfo
from bookie_server.wire.rpc import v2, v3
from bookkeeper_metadata.foundation.tasks import settle
from tests.doubles.byte_streams import GIVES_UP_S, SimStream, connect_ends
from tests.simulation.kit.loop import Owner
from tests.simulation.world.network import Network
from tests.simulation.world.stores import CLUSTER_ID

if TYPE_CHECKING:
    from tests.simulation.world.bookies import SimBookie

_US = 1_000_000
HEALERS = "healer"
"""How the names of processes that heal begin; those of bookies have a number behind a #."""


class Line(SimStream):
    """One end of a connection, in the hands of a process."""

    def __init__(self, network: Network, random: Random, owner: Owner, other: Owner) -> None:
        super().__init__(random, other.name)
        self.owner = owner
        self._network = network
        self._target = other
        self._due_us = 0
        owner.at_end.append(self._owner_ended)

    def _later(self, act: Callable[..., None], *values: bytes) -> None:
        # What a process that was killed still does reaches nobody.
        if self.owner.is_dead:
            return
        loop = self._network.loop
        delay_us = self._network.delay_of_bytes_us(self.owner.place, self._target.place)
        self._due_us = max(self._due_us, loop.now_us + delay_us)
        loop.after(self._due_us - loop.now_us, self._target.run, partial(act, *values))
        if self._network.breaks_connection():
            loop.after(delay_us, self.break_off)

    def _owner_ended(self) -> None:
        """The process is gone; its kernel says so, unless it went too."""
        other = self._other
        assert other is not None
        told_us = self._network.delay_of_bytes_us(self.owner.place, self._target.place)
        if not self._random.randrange(3):
            told_us = int(GIVES_UP_S * _US)
            self._network.count("F10 connection half-open")
        self._network.loop.after(told_us, self._target.run, other.break_off)


@unique
class Carrier(Enum):
    """What brings requests to a world's bookies; its name on the command line."""

    MESSAGES = "messages"
    """Each is a message of the network."""
    SOCKETS = "sockets"
    RPC = "rpc"
    """Apache's protocol, for all but those who heal."""


class Lines:
    """All connections of one world."""

    def __init__(self, network: Network, random: Random, carrier: Carrier) -> None:
        self._network = network
        self._random = random
        self._has_rpc = carrier is Carrier.RPC

    def client(
        self, owner: Owner, machine: SimBookie, settings: ConnectionSettings
    ) -> BookieClient:
        """One process' client of one bookie."""
        # Whoever heals asks for what Apache's protocol has no word for: which copies are damaged.
        has_rpc = self._has_rpc and not owner.name.startswith(HEALERS) and "#" not in owner.name
        connect = partial(self._connect, owner, machine, RpcService if has_rpc else SocketService)
        if has_rpc:
            version = self._random.choice((v2.VERSION, v3.VERSION))
            return RpcBookieClient(machine.name, connect, settings, version, random=self._random)
        return SocketBookieClient(machine.name, connect, settings, CLUSTER_ID, self._random)

    async def _connect(
        self, owner: Owner, machine: SimBookie, make: Callable[..., Acceptor]
    ) -> ByteStream:
        await self._travel(owner, machine.name)
        if not machine.is_serving:
            # Nobody listens there; a machine that is down says nothing at all.
            await asyncio.sleep(self._random.choice((0.001, 0.001, 10)))
            raise ConnectionRefusedError("nobody serves there")
        ours, theirs = (
            Line(self._network, self._random, *ends)
            for ends in ((owner, machine.owner), (machine.owner, owner))
        )
        connect_ends(ours, theirs)
        bookie = machine.observed(owner.name)
        service = BookieService(bookie, BookieInfo(machine.name, CLUSTER_ID), "/")
        acceptor = make(service, connections_max=1)
        machine.socket_services.append(acceptor)

        def serve() -> None:
            # Not before a pause of the machine is over; whom it was accepted for may have ended by then.
            if acceptor in machine.socket_services:
                acceptor.serve(theirs)
            else:
                theirs.close()

        machine.owner.run(serve)
        await self._travel(owner, machine.name)
        return ours

    async def _travel(self, owner: Owner, target: str) -> None:
        there: asyncio.Future[None] = self._network.loop.create_future()
        delay_us = self._network.delay_of_bytes_us(owner.place, target)
        self._network.loop.after(delay_us, owner.run, partial(settle, there, None))
        await there
