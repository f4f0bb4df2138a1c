"""A metadata store in memory, for tests and simulation: ZooKeeper's semantics without its clock.

Any number of sessions (:class:`MemoryStore`) share one :class:`MemoryTree`. Everything runs on one
event loop and in its order, so equal programs see equal histories; every operation lets others run
before it is applied and again before its caller gets the outcome. A ``fault`` hook decides, operation by
operation, whether the request or the reply is lost. Nothing here ever waits for real time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from enum import Enum, unique
from typing import Any, Generic, TypeVar

from bookkeeper_metadata.errors import MetadataUnavailableError
from bookkeeper_metadata.foundation.errors import ClientClosedError
from bookkeeper_metadata.store.interface import MetadataStore, Registration
from bookkeeper_metadata.store.lock import acquire_lock
from bookkeeper_metadata.store.memory_tree import MemoryTree
from bookkeeper_metadata.store.operations import (
    Create,
    Node,
    NodeExistsError,
    Operation,
    Put,
    StoreConflict,
    check_request,
)

T = TypeVar("T")
_REGISTER_ATTEMPTS_MAX = 100
"""Event-loop turns a leftover registration of another session is waited for."""


@unique
class Fault(Enum):
    """What happens to one operation; either way its caller gets ``MetadataUnavailableError``."""

    LOST_REQUEST = "lost before apply"
    LOST_REPLY = "applied, reply lost"


FaultHook = Callable[[str, str], Fault | None]
"""Called once per operation with its name and path (a ``multi``: its first operation's)."""


class MemoryStore(MetadataStore):
    """One session over a shared tree; a new tree of its own by default.

    ``fault`` is asked about every operation of this session and may be replaced at any time.
    """

    service = "memory"

    def __init__(self, tree: MemoryTree | None = None, *, fault: FaultHook | None = None) -> None:
        self.tree = MemoryTree() if tree is None else tree
        self.fault = fault
        self._session = self.tree.open_session()
        self._closed = False
        self._registrations: list[_MemoryRegistration] = []
        self._watches: list[_Watch[Any]] = []
        self._locks = 0

    @property
    def session_id(self) -> int:
        """Which session this is now; another one after :meth:`expire`."""
        return self._session

    async def create(self, path: str, value: bytes, *, make_parents: bool = False) -> None:
        check_request(path, value)

        def apply() -> None:
            if make_parents:
                self.tree.make_parents(path)
            self.tree.create(path, value)

        await self._perform("create", path, apply)

    async def get(self, path: str) -> Node | None:
        return await self._perform("get", path, lambda: self._node(path))

    async def put(self, path: str, value: bytes, expected_version: int) -> int:
        check_request(path, value)
        return await self._perform(
            "put", path, lambda: self.tree.put(path, value, expected_version)
        )

    async def delete(self, path: str, expected_version: int | None = None) -> None:
        await self._perform("delete", path, lambda: self.tree.delete(path, expected_version))

    async def children(self, path: str) -> list[str] | None:
        return await self._perform("children", path, lambda: self.tree.children(path))

    async def multi(self, operations: Sequence[Operation]) -> None:
        if not operations:
            return
        values = [part.value for part in operations if isinstance(part, Create | Put)]
        check_request(operations[0].path, *values)
        await self._perform("multi", operations[0].path, lambda: self.tree.multi(operations))

    async def sequence(self, path_prefix: str, value: bytes, *, ephemeral: bool = False) -> str:
        check_request(path_prefix, value)

        def apply() -> str:
            owner = self._session if ephemeral else None
            return self.tree.create_sequential(path_prefix, value, owner)

        return await self._perform("sequence", path_prefix, apply)

    async def ephemeral(self, path: str, value: bytes) -> Registration:
        check_request(path, value)
        registration = _MemoryRegistration(self, path, value)
        try:
            await self._enroll(path, value)
        except asyncio.CancelledError:
            with suppress(MetadataUnavailableError, ClientClosedError):
                await self._withdraw(registration)
            raise
        self._registrations.append(registration)
        self._restore(registration)  # the session may have ended since
        return registration

    async def _enroll(self, path: str, value: bytes) -> None:
        for _ in range(_REGISTER_ATTEMPTS_MAX):
            try:
                await self._perform(
                    "ephemeral", path, lambda: self.tree.create(path, value, self._session)
                )
                return
            except MetadataUnavailableError:
                if not self._owns(path):
                    raise
                return  # applied, reply lost: the node is this session's
            except NodeExistsError:
                if self._owns(path):
                    return
                # A live session keeps the node; an expiring one deletes it within a few turns.
        raise NodeExistsError(path)

    async def watch_children(
        self, path: str, changed: Callable[[list[str]], None]
    ) -> Callable[[], None]:
        return await self._follow("watch_children", path, self._names, changed)

    async def watch(self, path: str, changed: Callable[[Node | None], None]) -> Callable[[], None]:
        return await self._follow("watch", path, self._node, changed)

    async def _follow(
        self, operation: str, path: str, read: Callable[[str], T], changed: Callable[[T], None]
    ) -> Callable[[], None]:
        watch = await self._perform(operation, path, lambda: _Watch(self.tree, path, read, changed))
        self._watches.append(watch)
        watch.deliver()
        return watch.stop

    async def lock(self, path: str) -> Callable[[], Awaitable[None]]:
        self._locks += 1
        return await acquire_lock(self, path, f"{self._session:x}-{self._locks}")

    async def sync(self, path: str) -> None:
        await self._perform("sync", path, lambda: None)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for watch in self._watches:
            watch.stop()
        self._registrations.clear()
        self.tree.end_session(self._session)

    def expire(self) -> None:
        """The service drops this session: its ephemeral nodes vanish, then it gets a new one.

        Registrations come back under the new session a turn of the event loop later, as they do
        after a real reconnect; locks are lost without notice.
        """
        self.tree.end_session(self._session)
        self._session = self.tree.open_session()
        loop = asyncio.get_running_loop()
        for registration in self._registrations:
            loop.call_soon(self._restore, registration)

    def _restore(self, registration: _MemoryRegistration) -> None:
        if self._closed or registration not in self._registrations:
            return
        if self.tree.node(registration.path, self._session) is None:
            self.tree.create(registration.path, registration.value, self._session)

    async def _withdraw(self, registration: _MemoryRegistration) -> None:
        if registration in self._registrations:
            self._registrations.remove(registration)
        if not self._closed and self._owns(registration.path):
            await self.delete(registration.path)

    async def _perform(self, operation: str, path: str, apply: Callable[[], T]) -> T:
        """Apply at one instant between two turns of the loop, unless a fault says otherwise.

        With a lost reply the caller learns no outcome, neither a refusal nor a success.
        """
        self._check_open()
        fault = self.fault(operation, path) if self.fault is not None else None
        await asyncio.sleep(0)
        # Closed while the request was on its way: it never arrived.
        self._check_open()
        outcome: list[T] = []
        refusal: StoreConflict | None = None
        if fault is not Fault.LOST_REQUEST:
            try:
                outcome.append(apply())
            except StoreConflict as refused:
                refusal = refused
        await asyncio.sleep(0)
        if fault is not None:
            raise MetadataUnavailableError(self.service, f"{operation} got no reply")
        if refusal is not None:
            raise refusal
        return outcome[0]

    def _check_open(self) -> None:
        if self._closed:
            raise ClientClosedError("metadata store")

    def _node(self, path: str) -> Node | None:
        return self.tree.node(path, self._session)

    def _names(self, path: str) -> list[str]:
        return self.tree.children(path) or []

    def _owns(self, path: str) -> bool:
        node = self._node(path)
        return node is not None and node.is_own


class _MemoryRegistration(Registration):
    """Kept in its store's list for as long as it must come back after an expiry."""

    def __init__(self, store: MemoryStore, path: str, value: bytes) -> None:
        self._store = store
        self.path = path
        self.value = value
        self.keeper = asyncio.get_running_loop().create_future()

    async def withdraw(self) -> None:
        await self._store._withdraw(self)


class _Watch(Generic[T]):
    """Reads again one turn of the loop after a change and reports what differs."""

    def __init__(
        self, tree: MemoryTree, path: str, read: Callable[[str], T], changed: Callable[[T], None]
    ) -> None:
        self._read = read
        self._path = path
        self._changed = changed
        self._loop = asyncio.get_running_loop()
        # Empty or one state. No value can stand for "nothing reported yet", for None is a state
        # too.
        self._last: list[T] = []
        self._is_scheduled = False
        self._is_stopped = False
        self._unlisten = tree.listen(path, self._poke)

    def deliver(self) -> None:
        """Report the present state unless it was reported already."""
        self._is_scheduled = False
        if self._is_stopped:
            return
        state = self._read(self._path)
        if [state] != self._last:
            self._last = [state]
            self._changed(state)

    def stop(self) -> None:
        """End the watch, also what is already scheduled."""
        self._is_stopped = True
        self._unlisten()

    def _poke(self) -> None:
        # Changes in one turn are reported once, as their last state, like ZooKeeper's.
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self.deliver)
