"""What the observer of a world hears of requests: what comes to a bookie and is answered, and what a client is told."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

from bookie_server.bookie import Bookie
from bookie_server.client.interface import BookieClient
from bookie_server.core.effects import ReplyTo
from bookie_server.memory.budget import Room
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
from tests.simulation.kit.loop import Owner
from tests.simulation.world import history as h


class ObservedBookie:
    """A bookie as one client has it: the observer hears what came, and what was answered."""

    def __init__(
        self, bookie: Bookie, name: str, owner: Owner, who: str, history: h.History
    ) -> None:
        self._bookie = bookie
        self._name = name
        self._owner = owner
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

    async def read(self, request: ReadRequest, room: Room | None = None) -> StoredReply:
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

    async def read_lac(self, request: ReadLacRequest, room: Room | None = None) -> ReadLacReply:
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
    """A client; the observer hears what is told to whoever asked."""

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
