"""Plain sockets between the processes of a world: the product's carrier at both ends, the world's network in between.

What :mod:`tests.simulation.world.network` does to messages it does to bytes here, as far as TCP lets it: they
come late and in parts of any size, wait while an edge is cut, and never come twice or out of order. A
connection ends with its process: the other end hears it at once, or, where a machine went with it, only when the
kernel has given up.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, cast

from bookie_server.bookie import Bookie
from bookie_server.carrier.byte_stream import ByteStream
from bookie_server.client.interface import BookieClient
from bookie_server.client.settings import ConnectionSettings
from bookie_server.client.socket_client import SocketBookieClient
from bookie_server.core.effects import ReplyTo
from bookie_server.memory.budget import Room
from bookie_server.serving.service import BookieService
from bookie_server.serving.socket_service import SocketService
from bookie_server.wire.messages import (
    BookieInfo,
    EncodedSection,
    EntryList,
    ReadLacReply,
    ReadLacRequest,
    ReadReply,
    ReadRequest,
    Section,
    Status,
    StoredReply,
)
from bookie_server.wire.record import parse_run
from tests.doubles.byte_streams import GIVES_UP_S, SimStream, connect_ends
from tests.simulation.kit.loop import Owner
from tests.simulation.world import history as h
from tests.simulation.world.network import Network
from tests.simulation.world.stores import CLUSTER_ID

if TYPE_CHECKING:
    from tests.simulation.world.bookies import SimBookie

_US = 1_000_000


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


class ObservedBookie:
    """A bookie as one of its connections has it: the observer hears what came, and what was answered."""

    def __init__(self, bookie: Bookie, machine: SimBookie, who: str, history: h.History) -> None:
        self._bookie = bookie
        self._owner = machine.owner
        self._name = machine.name
        self._who = who
        self._history = history

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bookie, name)

    def add(self, section: Section, to: ReplyTo, client: str = "") -> None:
        """As the bookie does."""
        run, ledger, is_recovery = section.run, section.ledger_id, section.is_recovery
        ends = run.first_entry, run.last_entry
        self._history.record(h.AddArrived(self._name, self._who, ledger, *ends, is_recovery))

        def reply(status: Status) -> None:
            self._note(h.AddReplied(self._name, ledger, *ends, is_recovery, status))
            to(status)

        self._bookie.add(section, reply, client)

    async def read(self, request: ReadRequest, room: Room) -> StoredReply:
        """As the bookie does."""
        since = len(self._history.events)
        reply = await self._bookie.read(request, room)
        found = tuple(
            (entry_id, zlib.crc32(run.record(index)))
            for run in map(parse_run, reply.chunks)
            for index, entry_id in enumerate(run.entry_ids)
        )
        missing = tuple((m.first_entry, m.last_entry, m.status) for m in reply.missing)
        asked = request.ledger_id, request.stripe, request.is_fencing
        self._note(h.ReadReplied(since, self._name, self._who, *asked, found, missing))
        return reply

    async def read_lac(self, request: ReadLacRequest, room: Room) -> ReadLacReply:
        """As the bookie does."""
        since = len(self._history.events)
        reply = await self._bookie.read_lac(request, room)
        asked = request.ledger_id, request.is_fencing
        self._note(h.LacReplied(since, self._name, self._who, *asked, reply.status))
        return reply

    def _note(self, event: h.AddReplied | h.ReadReplied | h.LacReplied) -> None:
        if not self._owner.is_dead:
            self._history.record(event)


class ObservedClient(BookieClient):
    """The product's client; the observer hears what is told to whoever asked."""

    def __init__(self, inner: BookieClient, owner: Owner, history: h.History) -> None:
        self.bookie_id = inner.bookie_id
        self._inner = inner
        self._who = owner.name
        self._history = history

    def write(self, section: EncodedSection, done: Callable[[Status], None]) -> None:
        self._inner.write(section, done)

    async def read(self, request: ReadRequest) -> ReadReply:
        if request.is_fencing:
            self._history.record(h.FencingReadSent(self._who, self.bookie_id, request.ledger_id))
        reply = await self._inner.read(request)
        missing = tuple((m.first_entry, m.last_entry, m.status) for m in reply.missing)
        asked = request.ledger_id, request.is_fencing
        self._history.record(h.ReadReceived(self._who, self.bookie_id, *asked, missing))
        return reply

    async def read_lac(self, request: ReadLacRequest) -> ReadLacReply:
        reply = await self._inner.read_lac(request)
        asked = request.ledger_id, request.is_fencing
        self._history.record(h.LacReceived(self._who, self.bookie_id, *asked, reply.status))
        return reply

    async def write_lac(self, ledger_id: int, master_key: bytes, packet: bytes) -> Status:
        return await self._inner.write_lac(ledger_id, master_key, packet)

    async def info(self) -> BookieInfo | None:
        return await self._inner.info()

    async def list_page(self, ledger_id: int, first_entry: int) -> EntryList:
        return await self._inner.list_page(ledger_id, first_entry)

    async def close(self) -> None:
        await self._inner.close()


class Lines:
    """All connections of one world."""

    def __init__(self, network: Network, history: h.History, random: Random) -> None:
        self._network = network
        self._history = history
        self._random = random

    def client(
        self, owner: Owner, machine: SimBookie, settings: ConnectionSettings
    ) -> BookieClient:
        """One process' client of one bookie."""
        connect = partial(self._connect, owner, machine)
        inner = SocketBookieClient(machine.name, connect, settings, CLUSTER_ID, self._random)
        return ObservedClient(inner, owner, self._history)

    async def _connect(self, owner: Owner, machine: SimBookie) -> ByteStream:
        await self._travel(owner, machine.name)
        bookie = machine.serving
        if bookie is None:
            # Nobody listens there; a machine that is down says nothing at all.
            await asyncio.sleep(self._random.choice((0.001, 0.001, 10)))
            raise ConnectionRefusedError("nobody serves there")
        ours, theirs = (
            Line(self._network, self._random, *ends)
            for ends in ((owner, machine.owner), (machine.owner, owner))
        )
        connect_ends(ours, theirs)
        observed = cast(Bookie, ObservedBookie(bookie, machine, owner.name, self._history))
        service = BookieService(observed, BookieInfo(machine.name, CLUSTER_ID), "/")
        sockets = SocketService(service, connections_max=1)
        machine.socket_services.append(sockets)
        machine.owner.run(partial(sockets.serve, theirs))
        await self._travel(owner, machine.name)
        return ours

    async def _travel(self, owner: Owner, target: str) -> None:
        there = self._network.loop.create_future()
        delay_us = self._network.delay_of_bytes_us(owner.place, target)

        def arrive() -> None:
            with suppress(asyncio.InvalidStateError):
                there.set_result(None)

        self._network.loop.after(delay_us, owner.run, arrive)
        await there
