"""Sessions of the metadata store in memory that do what a test says: count, lose, refuse, lag, delay.

A fault hook of ``MemoryStore`` is enough to count and to lose: :class:`Script` and :class:`LoseNth`
are hooks. What must wait, refuse, come late or answer from the past is a :class:`ScriptedStore`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from random import Random
from typing import TypeVar

from bookkeeper_metadata.errors import MetadataUnavailableError
from bookkeeper_metadata.store.memory import Fault, FaultHook, MemoryStore
from bookkeeper_metadata.store.memory_tree import MemoryTree
from bookkeeper_metadata.store.operations import Create, Node, Operation, Put, StoreConflict
from tests.doubles.waits import pass_turns

T = TypeVar("T")
MUTATIONS = ("create", "put", "delete", "multi", "sequence")
MUTATIONS_MAX = 200
"""More than any scenario makes."""


class Script:
    """A fault hook that notes every operation and does what a test wants done at one of them."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []
        """Operation and path, in order."""
        self._acts: dict[tuple[str, int], Callable[[], Fault | None]] = {}

    def __call__(self, operation: str, path: str) -> Fault | None:
        self.seen.append((operation, path))
        act = self._acts.get((operation, len(self.paths(operation))))
        return act() if act is not None else None

    def at(self, operation: str, nth: int, act: Callable[[], Fault | None]) -> None:
        """Call ``act`` at the ``nth`` (from 1) ``operation``, before it is applied."""
        self._acts[operation, nth] = act

    def lose(self, operation: str, nth: int, fault: Fault) -> None:
        """Lose request or reply of the ``nth`` (from 1) ``operation``."""
        self.at(operation, nth, lambda: fault)

    def paths(self, operation: str) -> list[str]:
        """What the ``operation`` was used on so far."""
        return [path for each, path in self.seen if each == operation]


class LoseNth:
    """A fault hook that loses request or reply of the n-th mutation (from 0) of a session.

    If that ``is_fatal``, the session's process dies of it: nothing more of it arrives anywhere.
    """

    def __init__(self, nth: int, fault: Fault, *, is_fatal: bool = False) -> None:
        self.nth = nth
        self.fault = fault
        self.died = asyncio.Event()
        self._is_fatal = is_fatal
        self._mutations = 0

    def __call__(self, operation: str, path: str) -> Fault | None:
        if self.died.is_set():
            return Fault.LOST_REQUEST
        if operation not in MUTATIONS:
            return None
        self._mutations += 1
        if self._mutations - 1 != self.nth:
            return None
        if self._is_fatal:
            self.died.set()
        return self.fault

    @property
    def has_struck(self) -> bool:
        return self._mutations > self.nth


async def every_mutation(
    attempt: Callable[[LoseNth], Awaitable[object]], fault: Fault, *, is_fatal: bool = False
) -> int:
    """Run ``attempt`` once for each mutation it makes, which is lost; returns how many it makes."""
    for nth in range(MUTATIONS_MAX):
        lose = LoseNth(nth, fault, is_fatal=is_fatal)
        try:
            await attempt(lose)
        except BaseException as failed:
            failed.add_note(f"mutation={nth}")
            raise
        if not lose.has_struck:
            return nth
    raise AssertionError("it never ends")


def losing_at_random(random: Random, rate: float) -> FaultHook:
    """Faults on any operation at ``rate``, half before and half after it was applied."""

    def fault(_operation: str, _path: str) -> Fault | None:
        if random.random() >= rate:
            return None
        return random.choice((Fault.LOST_REQUEST, Fault.LOST_REPLY))

    return fault


class ScriptedStore(MemoryStore):
    """A session whose operations a test holds up, refuses, applies late or answers differently."""

    def __init__(self, tree: MemoryTree | None = None, *, fault: FaultHook | None = None) -> None:
        super().__init__(tree, fault=fault)
        self.sent_bytes = 0
        """Of the values in ``create`` and ``multi``."""
        self.before: Callable[[str, str], Awaitable[None]] | None = None
        """Awaited with operation and path before it is sent; may raise in its stead."""
        self.is_late: Callable[[str, str], bool] = lambda operation, path: False
        """Whether an operation gets no reply and is applied only later."""
        self.under_way: list[Callable[[], object]] = []
        """Late operations in their order; :meth:`arrive` applies them."""
        self.answer: Callable[[str, Node | None], Node | None] = lambda path, node: node
        """What ``get`` returns instead of the node it found."""

    def arrive(self) -> None:
        """Apply what is late; a refusal reaches nobody any more."""
        while self.under_way:
            with suppress(StoreConflict):
                self.under_way.pop(0)()

    async def get(self, path: str) -> Node | None:
        return self.answer(path, await super().get(path))

    async def create(self, path: str, value: bytes, *, make_parents: bool = False) -> None:
        self.sent_bytes += len(value)
        await super().create(path, value, make_parents=make_parents)

    async def multi(self, operations: Sequence[Operation]) -> None:
        self.sent_bytes += sum(len(p.value) for p in operations if isinstance(p, Create | Put))
        await super().multi(operations)

    async def _perform(self, operation: str, path: str, apply: Callable[[], T]) -> T:
        if self.before is not None:
            await self.before(operation, path)
        if self.is_late(operation, path):
            self.under_way.append(apply)
            raise MetadataUnavailableError(self.service, "reply lost, request under way")
        return await super()._perform(operation, path, apply)


class LaggingStore(MemoryStore):
    """A session of a follower that has not heard of some nodes until it is synced."""

    def __init__(self, tree: MemoryTree, unheard: str) -> None:
        super().__init__(tree)
        self.unheard: str | None = unheard
        """What the paths of those nodes contain."""

    def _has_heard(self, path: str) -> bool:
        return self.unheard is None or self.unheard not in path

    async def get(self, path: str) -> Node | None:
        return await super().get(path) if self._has_heard(path) else None

    async def children(self, path: str) -> list[str] | None:
        return await super().children(path) if self._has_heard(path) else None

    async def sync(self, path: str) -> None:
        await super().sync(path)
        self.unheard = None


class StandingStill(MemoryStore):
    """A session of a follower that, once it is stopped, shows the values of then until it is synced."""

    def __init__(self, tree: MemoryTree) -> None:
        super().__init__(tree)
        self._then: dict[str, Node | None] | None = None

    async def stop(self) -> None:
        """From here on nothing new is heard of."""
        then = {path: await super(StandingStill, self).get(path) for path in self.tree.paths()}
        self._then = then

    async def get(self, path: str) -> Node | None:
        return await super().get(path) if self._then is None else self._then.get(path)

    async def sync(self, path: str) -> None:
        await super().sync(path)
        self._then = None


class UnrulyStore(ScriptedStore):
    """A session whose operations take seeded numbers of turns, and whose multis may come late."""

    def __init__(
        self,
        tree: MemoryTree,
        random: Random,
        *,
        late_rate: float = 0.0,
        fault: FaultHook | None = None,
    ) -> None:
        super().__init__(tree, fault=fault)
        self.late: set[asyncio.Task[None]] = set()

        async def before(_operation: str, _path: str) -> None:
            await pass_turns(random.randrange(6))

        async def deliver() -> None:
            await pass_turns(random.randrange(60))
            self.arrive()

        def is_late(operation: str, _path: str) -> bool:
            if operation != "multi" or random.random() >= late_rate:
                return False
            task = asyncio.create_task(deliver())
            self.late.add(task)
            task.add_done_callback(self.late.discard)
            return True

        self.before, self.is_late = before, is_late
