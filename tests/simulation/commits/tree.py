"""The metadata service's tree with its whole past, so that a session may read an old state of it.

Every applied mutation is one *change*, numbered from 1 as ZooKeeper numbers its transactions; a
multi is one. Whoever lags behind reads the tree as it was after some earlier change, all of it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from bookkeeper_metadata.store.memory_tree import MemoryTree, parent_of
from bookkeeper_metadata.store.operations import Node, Operation
from tests.simulation.commits.history import NOBODY, Actor

ROOT = "/ledgers"
PREFIX = f"{ROOT}/L"
"""Of a ledger's node."""
Observe = Callable[[Actor, Sequence[str]], None]
"""Called with who changed which paths, once the change is in the tree."""


@dataclass(frozen=True, slots=True)
class _State:
    """What was at one path, and the change since which it was."""

    since: int = 0
    node: Node | None = None
    children: list[str] | None = None


class PastTree(MemoryTree):
    """Remembers everything. Mutations are made in the name of ``actor``, set by who makes them."""

    def __init__(self, clock_ms: Callable[[], int]) -> None:
        super().__init__(clock_ms)
        self.change = 0
        """How many changes there were."""
        self.actor = NOBODY
        self.observe: Observe = lambda actor, paths: None
        self.tried: Observe = lambda actor, paths: None
        """Called with every creation that was asked for, refused ones too."""
        self._pasts: dict[str, list[_State]] = {}

    def create(self, path: str, value: bytes, owner: int | None = None) -> None:
        self.tried(self.actor, (path,))
        super().create(path, value, owner)
        self._changed((path,))

    def put(self, path: str, value: bytes, expected_version: int) -> int:
        version = super().put(path, value, expected_version)
        self._changed((path,))
        return version

    def delete(self, path: str, expected_version: int | None) -> None:
        super().delete(path, expected_version)
        self._changed((path,))

    def multi(self, operations: Sequence[Operation]) -> None:
        super().multi(operations)
        self._changed([part.path for part in operations])

    def node_at(self, path: str, change: int) -> Node | None:
        """The node after that change."""
        return self._at(path, change).node

    def children_at(self, path: str, change: int) -> list[str] | None:
        """Its children's names after that change."""
        found = self._at(path, change).children
        return None if found is None else list(found)

    def _at(self, path: str, change: int) -> _State:
        past = self._pasts.get(path, [])
        index = bisect_right(past, change, key=lambda state: state.since)
        return past[index - 1] if index else _State()

    def _changed(self, paths: Sequence[str]) -> None:
        self.change += 1
        self._remember({*paths, *map(parent_of, paths)})
        self.observe(self.actor, paths)

    def _remember(self, paths: Iterable[str]) -> None:
        for path in paths:
            state = _State(self.change, self.node(path), self.children(path))
            self._pasts.setdefault(path, []).append(state)
