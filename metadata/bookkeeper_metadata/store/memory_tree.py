"""The tree behind :class:`bookkeeper_metadata.store.memory.MemoryStore`: nodes, versions, sessions, multi.

Pure and synchronous: every method is one atomic step. Semantics are ZooKeeper's, checked against
the real one by the conformance suite; a sequential node's number counts the creations under its
parent, deletions do not turn it back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from bookkeeper_metadata.foundation.invariant import invariant
from bookkeeper_metadata.store.operations import (
    BadVersionError,
    Check,
    Create,
    Delete,
    Node,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    Put,
)

_SEQUENCE_MAX = 2**31 - 1


@dataclass(slots=True)
class _Entry:
    value: bytes
    created_ms: int
    modified_ms: int
    owner: int | None
    """Session of an ephemeral node."""
    version: int = 0
    children: set[str] = field(default_factory=set)
    creations: int = 0
    """Children ever created: the number of the next sequential child."""


class MemoryTree:
    """The nodes that all sessions share. ``clock_ms`` dates nodes and changes; by default at the epoch."""

    def __init__(self, clock_ms: Callable[[], int] = lambda: 0) -> None:
        self._clock_ms = clock_ms
        self._entries = {"/": _Entry(b"", 0, 0, None)}
        self._listeners: dict[str, dict[int, Callable[[], None]]] = {}
        self._listener_count = 0
        self._session_count = 0

    def open_session(self) -> int:
        """A session id never used before in this tree."""
        self._session_count += 1
        return self._session_count

    def end_session(self, session: int) -> None:
        """Delete every ephemeral node of ``session``."""
        # In the order of creation, which a dict keeps: runs must not differ by it.
        for path in [p for p, entry in self._entries.items() if entry.owner == session]:
            self.delete(path, None)

    def node(self, path: str, session: int | None = None) -> Node | None:
        """The node as ``session`` reads it."""
        entry = self._entries.get(path)
        if entry is None:
            return None
        is_own = entry.owner is not None and entry.owner == session
        return Node(entry.value, entry.version, entry.created_ms, is_own, entry.modified_ms)

    def children(self, path: str) -> list[str] | None:
        """Sorted names, ``None`` without the node."""
        entry = self._entries.get(path)
        return None if entry is None else sorted(entry.children)

    def paths(self) -> list[str]:
        """Every path of the tree, sorted, for tests to compare."""
        return sorted(self._entries)

    def create(self, path: str, value: bytes, owner: int | None = None) -> None:
        """A new node at version 0; see :class:`bookkeeper_metadata.store.interface.MetadataStore` for what is raised."""
        self._create(path, value, owner)
        self._notify(path)

    def make_parents(self, path: str) -> None:
        """Create the missing ancestors of ``path``, empty."""
        parent = parent_of(path)
        if parent not in self._entries:
            self.make_parents(parent)
            self.create(parent, b"")

    def create_sequential(self, prefix: str, value: bytes, owner: int | None) -> str:
        """Create ``prefix`` + the parent's counter, ten digits; returns the path."""
        parent = self._entries.get(parent_of(prefix))
        if parent is None:
            raise NoNodeError(prefix)
        path = f"{prefix}{parent.creations:010d}"
        self.create(path, value, owner)
        return path

    def set_counter(self, parent: str, creations: int) -> None:
        """Pretend that ``creations`` nodes were created under ``parent`` so far.

        Beyond 2^31-1 the counter is negative, as ZooKeeper's 32 bits are.
        """
        wrapped = (creations + _SEQUENCE_MAX + 1) % 2**32 - _SEQUENCE_MAX - 1
        self._entries[parent].creations = wrapped

    def put(self, path: str, value: bytes, expected_version: int) -> int:
        """Replace the value at exactly ``expected_version``; returns the new version."""
        self._put(path, value, expected_version)
        self._notify(path)
        return self._entries[path].version

    def delete(self, path: str, expected_version: int | None) -> None:
        """Delete a childless node."""
        self._delete(path, expected_version)
        self._notify(path)

    def multi(self, operations: Sequence[Operation]) -> None:
        """Apply all operations, or raise the first refusal and apply none."""
        # A dict, since a set of strings would make the order of nodes differ from run to run.
        touched = dict.fromkeys(
            path for part in operations for path in (part.path, parent_of(part.path))
        )
        # Copies of what a multi may touch, parents for their children and counters: a copy of the
        # tree for each multi would cost as much as the tree is large.
        before = {
            path: replace(entry, children=set(entry.children))
            for path in touched
            if (entry := self._entries.get(path)) is not None
        }
        try:
            for part in operations:
                self._apply(part)
        except Exception:
            for path in touched.keys() - before.keys():
                self._entries.pop(path, None)
            self._entries.update(before)
            raise
        # Only now: a listener must never see a multi half applied, or one that is undone.
        for part in operations:
            self._notify(part.path)

    def listen(self, path: str, changed: Callable[[], None]) -> Callable[[], None]:
        """Call ``changed`` when ``path`` or its children change; returns the function that ends it."""
        self._listener_count += 1
        key = self._listener_count
        self._listeners.setdefault(path, {})[key] = changed
        return lambda: self._unlisten(path, key)

    def _unlisten(self, path: str, key: int) -> None:
        listeners = self._listeners.get(path, {})
        listeners.pop(key, None)
        if not listeners:
            self._listeners.pop(path, None)

    def _notify(self, path: str) -> None:
        for touched in (path, parent_of(path)):
            for changed in list(self._listeners.get(touched, {}).values()):
                changed()

    def _apply(self, part: Operation) -> None:
        match part:
            case Create(path, value):
                self._create(path, value, None)
            case Put(path, value, expected_version):
                self._put(path, value, expected_version)
            case Delete(path, expected):
                self._delete(path, expected)
            case Check(path, expected):
                self._entry_at(path, expected)

    def _create(self, path: str, value: bytes, owner: int | None) -> None:
        if path in self._entries:
            raise NodeExistsError(path)
        parent = self._entries.get(parent_of(path))
        if parent is None:
            raise NoNodeError(path)
        creations = parent.creations
        now_ms = self._clock_ms()
        self._entries[path] = _Entry(value, now_ms, now_ms, owner)
        parent.children.add(path.rpartition("/")[2])
        parent.creations = -_SEQUENCE_MAX - 1 if creations == _SEQUENCE_MAX else creations + 1

    def _put(self, path: str, value: bytes, expected_version: int) -> None:
        entry = self._entry_at(path, expected_version)
        entry.value = value
        entry.version += 1
        entry.modified_ms = self._clock_ms()

    def _delete(self, path: str, expected_version: int | None) -> None:
        if self._entry_at(path, expected_version).children:
            raise NotEmptyError(path)
        del self._entries[path]
        self._entries[parent_of(path)].children.remove(path.rpartition("/")[2])

    def _entry_at(self, path: str, expected_version: int | None) -> _Entry:
        invariant(expected_version is None or expected_version >= 0, "versions start at 0")
        entry = self._entries.get(path)
        if entry is None:
            raise NoNodeError(path)
        if expected_version is not None and entry.version != expected_version:
            raise BadVersionError(path)
        return entry


def parent_of(path: str) -> str:
    """The path one level up; the root is its own parent."""
    return path.rpartition("/")[0] or "/"
