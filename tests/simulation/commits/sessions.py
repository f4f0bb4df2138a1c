"""Metadata sessions of simulated processes: behind, slow, lossy, late.

A session is served by a follower. What it reads is the tree after some change of the past: never an
older one than it saw before, its own acknowledged mutations included, and after ``sync`` none older
than the present then. In between it may stand still while others move on.

A mutation on its way is nobody's: it is applied when it arrives, though its process died meanwhile.
The request may get lost, the reply may, or the caller gives up and the request arrives later, after
whatever others did.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from bookkeeper_metadata.errors import MetadataUnavailableError
from bookkeeper_metadata.foundation.errors import ClientClosedError
from bookkeeper_metadata.store.memory import MemoryStore
from bookkeeper_metadata.store.operations import (
    Create,
    Node,
    Operation,
    Put,
    StoreConflict,
    check_request,
)
from tests.simulation.commits.history import Actor
from tests.simulation.commits.observer import Observer
from tests.simulation.commits.script import Fate, Script
from tests.simulation.commits.tree import PastTree
from tests.simulation.kit.choices import Stream
from tests.simulation.kit.loop import SimLoop

T = TypeVar("T")


MUTATIONS = frozenset(("create", "put", "delete", "multi", "sequence"))
_TRAVEL_US = 1_000
_TIMEOUT_US = 40_000
_LATE_US = 60_000
"""Unit of how late a mutation arrives; up to 64 of them."""


@dataclass(slots=True)
class Weather:
    """What all sessions suffer; odds are "one in", 0 is never. May change at any time."""

    slow: int = 0
    """Operations that take up to 64 times as long."""
    lost: int = 0
    """Operations whose request or reply is lost."""
    late: int = 0
    """Mutations that are applied after their caller gave them up."""
    stale: int = 0
    """Reads from which on a session's follower stands still for a while."""


class Session(MemoryStore):
    """The session of one process."""

    def __init__(
        self,
        tree: PastTree,
        actor: Actor,
        stream: Stream,
        *,
        weather: Weather,
        script: Script,
        observer: Observer,
    ) -> None:
        super().__init__(tree)
        self.actor = actor
        self._past = tree
        self._stream = stream
        self._weather = weather
        self._script = script
        self._history = observer.history
        self._observer = observer
        self._loop: SimLoop = asyncio.get_running_loop()  # type: ignore[assignment]
        self._seen = tree.change
        self._stale_reads = 0
        """Reads still answered by a follower that stands still."""

    async def get(self, path: str) -> Node | None:
        return await self._perform("get", path, lambda: self._past.node_at(path, self._look()))

    async def children(self, path: str) -> list[str] | None:
        return await self._perform(
            "children", path, lambda: self._past.children_at(path, self._look())
        )

    async def multi(self, operations: Sequence[Operation]) -> None:
        if not operations:
            return
        values = [part.value for part in operations if isinstance(part, Create | Put)]
        check_request(operations[0].path, *values)
        path = " ".join(part.path for part in operations)
        await self._perform("multi", path, lambda: self.tree.multi(operations))

    def freeze(self) -> None:
        """The session's follower stands still until a ``sync`` or an acknowledged mutation."""
        self._stale_reads = 1 << 30

    async def _perform(self, operation: str, path: str, apply: Callable[[], T]) -> T:
        if self._closed:
            raise ClientClosedError("metadata store")
        await self._script.before(self.actor, operation, path)
        fate = self._script.fate(self.actor, operation, path) or self._draw(operation)
        if fate is not Fate.OK:
            self._history.marks[fate.value] += 1
        self._observer.sent(self.actor, operation, path)
        reply: asyncio.Future[T] = self._loop.create_future()
        call = _Call(operation, path, apply, reply, fate)
        self._history.note(f"{self.actor} {operation} {path}{fate.shown}")
        if fate is not Fate.OK:
            self._loop.after(_TIMEOUT_US + 1_000 * self._stream.below(64), self._give_up, call)
        if fate is Fate.LATE:
            self._script.late(
                lambda: self._arrive(call), _TIMEOUT_US + _LATE_US * (1 + self._stream.below(64))
            )
        elif fate is not Fate.LOST_REQUEST:
            self._loop.after(self._travel_us(), self._arrive, call)
        value = await reply
        self._observer.on_answer(self.actor, path, value)
        return value

    def _look(self) -> int:
        """The change after which this read sees the tree."""
        newest = self._past.change
        if self._stale_reads:
            self._stale_reads -= 1
            if self._seen < newest:
                self._history.marks["stale read"] += 1
                if self._stale_reads < 1 << 20:
                    self._seen = min(newest, self._seen + self._stream.below(2))
            return self._seen
        if self._weather.stale and self._stream.one_in(self._weather.stale):
            self._stale_reads = 1 + self._stream.below(12)
        self._seen = newest
        return newest

    def _arrive(self, call: _Call[T]) -> None:
        try:
            self._past.actor = self.actor
            value = call.apply()
        except StoreConflict as refused:
            self._history.note(f"{self.actor} {call.operation} refused at {refused.path}")
            self._answer(call, partial(call.reply.set_exception, refused))
        else:
            self._answer(call, partial(call.reply.set_result, value))

    def _answer(self, call: _Call[T], tell: Callable[[], None]) -> None:
        if call.fate is not Fate.OK:
            return
        if call.operation not in ("get", "children"):
            # A refusal is ordered among the changes like a success: it shows all before it.
            self._seen = self._past.change
            self._stale_reads = 0

        def arrived() -> None:
            if not call.reply.done():
                tell()

        self._loop.after(self._travel_us(), arrived)

    def _give_up(self, call: _Call[T]) -> None:
        if not call.reply.done():
            error = MetadataUnavailableError(self.service, f"{call.operation} got no reply")
            call.reply.set_exception(error)

    def _travel_us(self) -> int:
        is_slow = self._weather.slow and self._stream.one_in(self._weather.slow)
        return _TRAVEL_US * (1 + self._stream.below(64) if is_slow else 1 + self._stream.below(3))

    def _draw(self, operation: str) -> Fate:
        weather, stream = self._weather, self._stream
        if weather.lost and stream.one_in(weather.lost):
            return (Fate.LOST_REQUEST, Fate.LOST_REPLY)[stream.below(2)]
        if weather.late and operation in MUTATIONS and stream.one_in(weather.late):
            return Fate.LATE
        return Fate.OK


@dataclass(frozen=True, slots=True)
class _Call(Generic[T]):
    operation: str
    path: str
    apply: Callable[[], T]
    reply: asyncio.Future[T]
    fate: Fate
