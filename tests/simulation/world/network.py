"""The network between clients and bookies: delays, loses, repeats, holds back and cuts off.

A message travels an edge (source, target), each direction on its own. A partition blocks an edge
for a while: what is sent meanwhile is lost, or arrives when it ends, as the seed says. Replies are
messages too. A client that gets no answer in time is told UNREACHABLE, whatever became of its
request; an answer that comes later reaches nobody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import TYPE_CHECKING, TypeVar

from bookie_server.client.interface import BookieClient
from bookie_server.client.local import LocalBookieClient
from bookie_server.client.read_stream import unreachable
from bookie_server.wire.messages import (
    BookieInfo,
    EncodedSection,
    EntryList,
    ReadLacReply,
    ReadLacRequest,
    ReadReply,
    ReadRequest,
    Status,
)
from tests.simulation.kit.loop import Owner, SimLoop

if TYPE_CHECKING:
    from tests.simulation.world.bookies import SimBookie

T = TypeVar("T")
RETRANSMISSION_US = 200_000
"""How soon TCP sends again what nobody has said to have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkFaults:
    """Rates per thousand messages; times in microseconds."""

    delay_us: int = 500
    is_fifo: bool = True
    loss: int = 0
    duplication: int = 0
    holding_back: int = 0
    """Writes that arrive up to ``held_back_us`` later."""
    held_back_us: int = 3_000_000
    stragglers: int = 0
    """Messages that take up to ``straggler_us``."""
    straggler_us: int = 100_000


@dataclass(eq=False)
class Network:
    """All edges of one world."""

    loop: SimLoop
    random: Random
    faults: NetworkFaults
    count: Callable[[str], None]
    """Called with each fault injected, by its class."""
    _blocked: dict[tuple[str, str], tuple[int, bool]] = field(default_factory=dict)
    _last_us: dict[tuple[str, str], int] = field(default_factory=dict)

    def block(self, source: str, target: str, until_us: int, *, loses: bool) -> None:
        """Cut one direction; ``loses`` says whether messages are lost or wait."""
        self._blocked[source, target] = until_us, loses

    def heal(self) -> None:
        """Everything flows from now on; what is lost or late already stays so."""
        self._blocked.clear()
        self.faults = NetworkFaults()

    def send(
        self, source: Owner, target: str, deliver: Callable[[], None], *, is_write: bool = False
    ) -> None:
        """Have a message delivered: never, once or twice."""
        if source.is_dead:
            return
        faults, random = self.faults, self.random
        if faults.loss and random.randrange(1000) < faults.loss:
            self.count("F10 message lost")
            return
        copies = 1
        if faults.duplication and random.randrange(1000) < faults.duplication:
            self.count("F11 message repeated")
            copies = 2
        for _ in range(copies):
            delay_us = self._delay_us(source.place, target, is_write=is_write)
            if delay_us is not None:
                self.loop.after(delay_us, deliver)

    def delay_of_bytes_us(self, source: str, target: str) -> int:
        """How long bytes of a stream take on this edge: what is lost is sent again, and what is cut off waits."""
        faults, random, now_us = self.faults, self.random, self.loop.now_us
        delay_us = random.randrange(faults.delay_us // 4, 2 * faults.delay_us)
        until_us, _ = self._blocked.get((source, target), (0, False))
        if until_us > now_us:
            self.count("F10 bytes wait at a partition")
            delay_us += until_us - now_us
        if faults.loss and random.randrange(1000) < faults.loss:
            self.count("F10 bytes sent again")
            delay_us += RETRANSMISSION_US
        if faults.stragglers and random.randrange(1000) < faults.stragglers:
            delay_us += random.randrange(faults.straggler_us)
        return delay_us

    def breaks_connection(self) -> bool:
        """Whether a connection ends for both sides, for nobody's fault."""
        breaks = bool(self.faults.loss) and self.random.randrange(3_000) < self.faults.loss
        if breaks:
            self.count("F10 connection broken")
        return breaks

    def _delay_us(self, source: str, target: str, *, is_write: bool) -> int | None:
        faults, random, now_us = self.faults, self.random, self.loop.now_us
        delay_us = random.randrange(faults.delay_us // 4, 2 * faults.delay_us)
        edge = source, target
        until_us, loses = self._blocked.get(edge, (0, False))
        if until_us > now_us:
            if loses:
                self.count("F10 message into a partition")
                return None
            delay_us += until_us - now_us
        if faults.stragglers and random.randrange(1000) < faults.stragglers:
            delay_us += random.randrange(faults.straggler_us)
        if is_write and faults.holding_back and random.randrange(1000) < faults.holding_back:
            self.count("F11 write held back")
            return delay_us + random.randrange(faults.held_back_us)  # alone, whatever the order
        if faults.is_fifo:
            delay_us = max(delay_us, self._last_us.get(edge, 0) - now_us)
            self._last_us[edge] = now_us + delay_us
        return delay_us


@dataclass(eq=False)
class SimBookieClient(BookieClient):
    """One client process' connection to one bookie, over the network."""

    _network: Network
    _owner: Owner
    _bookie: SimBookie
    _timeout_us: int

    def __post_init__(self) -> None:
        self.bookie_id = self._bookie.name

    # -- adds: callbacks, as there are many ---------------------------------------------------------

    def write(self, section: EncodedSection, done: Callable[[Status], None]) -> None:
        is_done = False

        def finish(status: Status) -> None:
            nonlocal is_done
            if not is_done:
                is_done = True
                self._owner.run(partial(done, status))

        def add(bookie: LocalBookieClient) -> None:
            owner = self._bookie.owner

            def answered(status: Status) -> None:
                self._network.send(owner, self._owner.name, partial(finish, status))

            bookie.write(section, answered)

        arrive = partial(self._to_bookie, add)
        self._network.send(self._owner, self.bookie_id, arrive, is_write=True)
        self._network.loop.after(self._timeout_us, finish, Status.UNREACHABLE)

    # -- everything else: requests that are waited for ------------------------------------------------

    async def read(self, request: ReadRequest) -> ReadReply:
        return await self._ask(lambda bookie: bookie.read(request)) or unreachable(request)

    async def read_lac(self, request: ReadLacRequest) -> ReadLacReply:
        reply = await self._ask(lambda bookie: bookie.read_lac(request), request.waits_ms * 1000)
        return reply or ReadLacReply(Status.UNREACHABLE)

    async def write_lac(self, ledger_id: int, master_key: bytes, packet: bytes) -> Status:
        status = await self._ask(lambda bookie: bookie.write_lac(ledger_id, master_key, packet))
        return status or Status.UNREACHABLE

    async def info(self) -> BookieInfo | None:
        return await self._ask(lambda bookie: bookie.info())

    async def list_page(self, ledger_id: int, first_entry: int) -> EntryList:
        held = await self._ask(lambda bookie: bookie.list_page(ledger_id, first_entry))
        return held or EntryList(Status.UNREACHABLE)

    async def close(self) -> None:
        """Nothing is held; answers still under way reach nobody."""

    async def _ask(
        self, serve: Callable[[LocalBookieClient], Awaitable[T]], patience_us: int = 0
    ) -> T | None:
        """The answer, or None when none came in time."""
        loop = self._network.loop
        answer: asyncio.Future[T | None] = loop.create_future()

        def resolve(outcome: T | None) -> None:
            self._owner.run(lambda: None if answer.done() else answer.set_result(outcome))

        async def serve_and_reply(bookie: LocalBookieClient) -> None:
            owner = self._bookie.owner
            reply = await serve(bookie)
            self._network.send(owner, self._owner.name, partial(resolve, reply))

        def begin(bookie: LocalBookieClient) -> None:
            loop.create_task(serve_and_reply(bookie), name=f"serve-{self.bookie_id}")

        self._network.send(self._owner, self.bookie_id, lambda: self._to_bookie(begin))
        timer = loop.after(self._timeout_us + patience_us, resolve, None)
        try:
            return await answer
        finally:
            timer.cancel()

    # -- crossing over ------------------------------------------------------------------------------

    def _to_bookie(self, serve: Callable[[LocalBookieClient], None]) -> None:
        """Hand a message to the process that runs the bookie now, if one does."""

        def take() -> None:
            if self._bookie.is_serving:  # after a pause it may not be any more
                observed = self._bookie.observed(self._owner.name)
                serve(LocalBookieClient(self.bookie_id, observed))

        if self._bookie.is_serving:
            self._bookie.owner.run(take)
