"""Bookies at the client's boundary that are dead, hang, lie or forget, as a test says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from bookie_server.client.interface import BookieClient
from bookie_server.client.local import LocalBookieClient
from bookie_server.client.read_stream import unreachable
from bookie_server.wire.messages import (
    BookieInfo,
    EncodedSection,
    EntryList,
    IdRange,
    LongPoll,
    ReadLacReply,
    ReadLacRequest,
    ReadReply,
    ReadRequest,
    Status,
)


@dataclass
class Faults:
    """What happens to requests to one bookie."""

    is_dead: bool = False
    """Nothing arrives, nothing is answered but UNREACHABLE."""
    hangs: bool = False
    """Nothing is ever answered, though adds arrive."""
    drops_writes: bool = False
    """Adds never arrive and are never answered."""
    write_status: Status | None = None
    """Adds are not stored and answered like this."""
    read_status: Status | None = None
    """Reads return nothing and claim this."""
    alter_read: Callable[[ReadReply], ReadReply] | None = None
    alter_lac: Callable[[ReadLacReply], ReadLacReply] | None = None
    holds_reads: asyncio.Event | None = None
    """Replies to reads come when it is set."""
    writes_seen: list[EncodedSection] = field(default_factory=list)
    reads_seen: list[ReadRequest] = field(default_factory=list)
    polls_seen: list[LongPoll] = field(default_factory=list)
    lacs_seen: list[bytes] = field(default_factory=list)


class FaultyClient(BookieClient):
    """A client whose requests and replies suffer ``faults``."""

    def __init__(
        self,
        inner: LocalBookieClient,
        faults: Faults,
        is_there: Callable[[], bool] = lambda: True,
    ) -> None:
        """``is_there``: whether the bookie is still at the address this client was made for."""
        self.bookie_id = inner.bookie_id
        self._is_there = is_there
        self.inner = inner
        self._faults = faults

    def write(self, section: EncodedSection, done: Callable[[Status], None]) -> None:
        self._faults.writes_seen.append(section)
        is_gone = self._faults.is_dead or not self._is_there()
        status = Status.UNREACHABLE if is_gone else self._faults.write_status
        if status is not None:
            asyncio.get_running_loop().call_soon(done, status)
        elif not self._faults.drops_writes:
            self.inner.write(section, (lambda status: None) if self._faults.hangs else done)

    async def _is_dead(self) -> bool:
        """Comes back never where the bookie hangs."""
        if self._faults.hangs:
            await asyncio.Event().wait()
        return self._faults.is_dead or not self._is_there()

    async def read(self, request: ReadRequest) -> ReadReply:
        self._faults.reads_seen.append(request)
        if await self._is_dead():
            return unreachable(request)
        if self._faults.read_status is not None:
            ids = IdRange(request.first_entry, request.last_entry, self._faults.read_status)
            return ReadReply((), (ids,), -1)
        reply = await self.inner.read(request)
        if self._faults.holds_reads is not None:
            await self._faults.holds_reads.wait()
        return self._faults.alter_read(reply) if self._faults.alter_read else reply

    async def read_lac(self, request: ReadLacRequest) -> ReadLacReply:
        if request.long_poll is not None:
            self._faults.polls_seen.append(request.long_poll)
        if await self._is_dead():
            return ReadLacReply(Status.UNREACHABLE)
        reply = await self.inner.read_lac(request)
        return self._faults.alter_lac(reply) if self._faults.alter_lac else reply

    async def write_lac(self, ledger_id: int, master_key: bytes, packet: bytes) -> Status:
        self._faults.lacs_seen.append(packet)
        if await self._is_dead():
            return Status.UNREACHABLE
        return await self.inner.write_lac(ledger_id, master_key, packet)

    async def info(self) -> BookieInfo | None:
        return None if await self._is_dead() else await self.inner.info()

    async def list_page(self, ledger_id: int, first_entry: int) -> EntryList:
        if await self._is_dead():
            return EntryList(Status.UNREACHABLE)
        return await self.inner.list_page(ledger_id, first_entry)

    async def close(self) -> None:
        """Nothing is held."""
