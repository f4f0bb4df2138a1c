"""What a machine has in front of it: commands come in as words, effects go out as lines.

A state machine answers at once. A coroutine is run on virtual time until everything it does waits for
an answer, which the next command gives.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, TypeVar

from bookkeeper_metadata.store.memory import MemoryStore
from bookkeeper_metadata.store.memory_tree import MemoryTree
from bookkeeper_metadata.store.operations import (
    Check,
    Create,
    Delete,
    Operation,
    Put,
    StoreConflict,
)
from tests.simulation.kit.loop import SimLoop

Lines = list[str]
T = TypeVar("T")


class Desk(ABC):
    """One machine, addressed in words."""

    @abstractmethod
    def perform(self, name: str, words: list[str]) -> Lines:
        """Do one command; returns its effects in order."""

    def close(self) -> None:  # noqa: B027 - state machines hold nothing
        """The transcript is at its end."""


class CoroutineDesk(Desk):
    """A machine that is a coroutine, on a loop of its own."""

    def __init__(self) -> None:
        self.loop = SimLoop()
        self.lines: Lines = []
        """Effects since the last command."""

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run to the end."""
        return self.loop.run_until_complete(work)

    def go_on(self) -> None:
        """Let everything happen that needs no answer."""
        self.run(asyncio.sleep(1))

    def taken(self) -> Lines:
        """The effects since the last command, once."""
        taken, self.lines[:] = list(self.lines), []
        return taken

    def close(self) -> None:
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.go_on()
        self.loop.close()


class SpokenStore(MemoryStore):
    """A metadata session that says what is asked of it."""

    def __init__(
        self, tree: MemoryTree, say: Callable[[str], None], shown: Callable[[str, bytes], str]
    ) -> None:
        """``shown`` is a path and, where there is one, the value to be written, for people."""
        super().__init__(tree)
        self._say = say
        self._shown = shown

    async def create(self, path: str, value: bytes, *, make_parents: bool = False) -> None:
        self._say(f"create {self._shown(path, value)}")
        await super().create(path, value, make_parents=make_parents)

    async def put(self, path: str, value: bytes, expected_version: int) -> int:
        self._say(f"put at version {expected_version}: {self._shown(path, value)}")
        return await super().put(path, value, expected_version)

    async def sequence(self, path_prefix: str, value: bytes, *, ephemeral: bool = False) -> str:
        self._say(f"create the next of {self._shown(path_prefix, value)}")
        return await super().sequence(path_prefix, value, ephemeral=ephemeral)

    async def multi(self, operations: Sequence[Operation]) -> None:
        self._say("all of this or nothing:")
        for part in operations:
            self._say(f"  {self._part(part)}")
        await super().multi(operations)

    def _part(self, part: Operation) -> str:
        match part:
            case Create(path, value):
                return f"create {self._shown(path, value)}"
            case Put(path, value, version):
                return f"put at version {version}: {self._shown(path, value)}"
            case Delete(path, _):
                return f"delete {self._shown(path, b'')}"
            case Check(path, version):
                is_at = "exists" if version is None else f"is at version {version}"
                return f"only if {self._shown(path, b'')} {is_at}"

    async def _perform(self, operation: str, path: str, apply: Callable[[], T]) -> T:
        if operation in ("get", "children", "delete", "sync"):
            self._say(f"{operation} {self._shown(path, b'')}")
        try:
            return await super()._perform(operation, path, apply)
        except StoreConflict as refused:
            self._say(f"refused: {type(refused).__name__}")
            raise


def span(ids: Iterable[int]) -> str:
    """``3..5``, or ``3``."""
    found = list(ids)
    return f"{found[0]}" if len(found) == 1 else f"{found[0]}..{found[-1]}"
