"""The metadata store in a real ZooKeeper.

Requests, their outcomes and the session are :mod:`bookkeeper_metadata.store.zookeeper_session`'s; here is what the
store's operations are in ZooKeeper's terms. Requests of a session are answered in order, so reading
back on the same store after an unknown outcome sees whatever became of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from bookkeeper_metadata.errors import MetadataAccessError, MetadataUnavailableError
from bookkeeper_metadata.foundation.errors import ClientClosedError
from bookkeeper_metadata.foundation.invariant import invariant
from bookkeeper_metadata.foundation.tasks import end_tasks
from bookkeeper_metadata.store.acl import Acl, Grant, NodeAcl
from bookkeeper_metadata.store.interface import MetadataStore, Registration
from bookkeeper_metadata.store.lock import acquire_lock
from bookkeeper_metadata.store.operations import (
    Check,
    Create,
    Delete,
    Node,
    NodeExistsError,
    NoNodeError,
    Operation,
    Put,
    StoreConflict,
    check_request,
)
from bookkeeper_metadata.store.zookeeper_access import ZooKeeperAccess
from bookkeeper_metadata.store.zookeeper_session import ZooKeeperSession, as_zookeepers
from bookkeeper_metadata.store.zookeeper_watch import Follower

_LOGGER = logging.getLogger(__name__)

SESSION_TIMEOUT_MS = 10_000
"""How long the service keeps ephemeral nodes of a silent client; Apache's ``zkTimeout``."""
CONNECT_TIMEOUT_MS = 10_000
"""How long a first connection may take before the service counts as unreachable."""
_ENROLL_PAUSE_S = 0.05
_ENROLL_GRACE_S = 2.0
"""Sessions end at a tick of the server, somewhat after their timeout."""
_KEEP_PAUSE_S = 1.0
_NOBODYS = ZooKeeperAccess()


class ZooKeeperStore(MetadataStore):
    """One ZooKeeper client; make it with :meth:`connect`, on the event loop that will use it."""

    def __init__(
        self,
        servers: Sequence[str],
        session_timeout_ms: int,
        access: ZooKeeperAccess = _NOBODYS,
    ) -> None:
        self._session = ZooKeeperSession(
            servers, session_timeout_ms, self._on_session_renewed, access
        )
        self.access = access
        """As whom, and with what ACL it creates."""
        self.service = self._session.service
        self._client = self._session.client
        self._locks = 0
        self._followers: set[Follower[Any]] = set()
        self._registrations: set[_ZooKeeperRegistration] = set()

    @classmethod
    async def connect(
        cls,
        servers: Sequence[str],
        *,
        access: ZooKeeperAccess = _NOBODYS,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        connect_timeout_ms: int = CONNECT_TIMEOUT_MS,
    ) -> ZooKeeperStore:
        """A store with a live session at one of ``servers`` (``host:port`` each).

        Raises:
            MetadataUnavailableError: none of them answered within ``connect_timeout_ms``.
            MetadataAccessError: one did, and does not authenticate this user.
        """
        store = cls(servers, session_timeout_ms, access)
        await store._session.open(connect_timeout_ms)
        return store

    @property
    def session_id(self) -> int:
        """ZooKeeper's id of the present session; another one after a session loss."""
        return self._session.id

    async def create(self, path: str, value: bytes, *, make_parents: bool = False) -> None:
        check_request(path, value)
        try:
            await self._session.mutate(path, lambda: self._client.create_async(path, value))
        except NoNodeError:
            if not make_parents:
                raise
            # Only when one is missing: the common creation is one request, not one for each level.
            # Another client may be making the same parents.
            with contextlib.suppress(NodeExistsError):
                await self.create(path.rpartition("/")[0], b"", make_parents=True)
            await self._session.mutate(path, lambda: self._client.create_async(path, value))

    async def get(self, path: str) -> Node | None:
        try:
            value, stat = await self._session.read(path, lambda: self._client.get_async(path))
        except NoNodeError:
            return None
        return self._node(value, stat)

    async def put(self, path: str, value: bytes, expected_version: int) -> int:
        check_request(path, value)
        version = _exact(expected_version)
        put = partial(self._client.set_async, path, value, version)
        stat = await self._session.mutate(path, put)
        return int(stat.version)

    async def delete(self, path: str, expected_version: int | None = None) -> None:
        version = _exact_or_any(expected_version)
        await self._session.mutate(path, lambda: self._client.delete_async(path, version))

    async def children(self, path: str) -> list[str] | None:
        try:
            ask = partial(self._client.get_children_async, path)
            return sorted(await self._session.read(path, ask))
        except NoNodeError:
            return None

    async def multi(self, operations: Sequence[Operation]) -> None:
        if not operations:
            return
        values = [part.value for part in operations if isinstance(part, Create | Put)]
        check_request(operations[0].path, *values)
        transaction = self._client.transaction()
        for part in operations:
            _add(transaction, part)
        results = await self._session.mutate(operations[0].path, transaction.commit_async)
        self._session.check_multi([part.path for part in operations], results)

    async def sequence(self, path_prefix: str, value: bytes, *, ephemeral: bool = False) -> str:
        check_request(path_prefix, value)
        flags = {"ephemeral": ephemeral, "sequence": True}
        create = partial(self._client.create_async, path_prefix, value, **flags)
        return str(await self._session.mutate(path_prefix, create))

    async def ephemeral(self, path: str, value: bytes) -> Registration:
        check_request(path, value)
        registration = _ZooKeeperRegistration(self, path, value)
        # Listed first: the session may end after the node's creation and before its reply.
        self._registrations.add(registration)
        try:
            await self._enroll(path, value)
        except BaseException:
            # Cancelled here as well: what is left behind would register a process that gave up. The
            # node may have been made and its reply be on its way; else it goes with the session.
            with contextlib.suppress(
                MetadataUnavailableError, MetadataAccessError, ClientClosedError
            ):
                await self._withdraw(registration)
            raise
        return registration

    async def watch_children(
        self, path: str, changed: Callable[[list[str]], None]
    ) -> Callable[[], None]:
        async def read(fire: Callable[[object], None]) -> list[str]:
            ask = partial(self._client.get_children_async, path, watch=fire)
            while True:
                try:
                    return sorted(await self._session.read(path, ask))
                except NoNodeError:
                    # Asking for the children of a missing node sets no watch, asking whether it
                    # exists does. A node made between the two is read in the next round.
                    if await self._stat(path, fire) is None:
                        return []

        return await self._follow(read, changed)

    async def watch(self, path: str, changed: Callable[[Node | None], None]) -> Callable[[], None]:
        async def read(fire: Callable[[object], None]) -> Node | None:
            # The watch comes before the value: a change between them costs another read, the other
            # way round it would be missed. And only this question can watch a node that is not
            # there.
            return None if await self._stat(path, fire) is None else await self.get(path)

        return await self._follow(read, changed)

    async def lock(self, path: str) -> Callable[[], Awaitable[None]]:
        self._locks += 1
        # No other client has this session's id, and no other call of this one has the number.
        return await acquire_lock(self, path, f"{self._session.id:x}-{self._locks}")

    async def sync(self, path: str) -> None:
        await self._session.read(path, lambda: self._client.sync_async(path))

    # -- what only ZooKeeper has --------------------------------------------------------------------

    async def acl(self, path: str) -> NodeAcl | None:
        """Who may do what with a node; ``None``: there is none.

        Raises:
            MetadataAccessError: to see that, one must be allowed to read it or to administer it.
        """
        try:
            ask = partial(self._client.get_acls_async, path)
            acl, stat = await self._session.read(path, ask)
        except NoNodeError:
            return None
        found = tuple(sorted(Grant(each.id.scheme, each.id.id, each.perms) for each in acl))
        return NodeAcl(found, stat.acl_version, bool(stat.numChildren))

    async def set_acl(self, path: str, acl: Acl, expected_version: int) -> None:
        """Replace a node's ACL at exactly ``expected_version``, which is the ACL's own.

        Raises:
            NoNodeError, BadVersionError: not applied.
            MetadataAccessError: not applied: it takes the right to administer the node.
        """
        version = _exact(expected_version)
        put = partial(self._client.set_acls_async, path, as_zookeepers(acl), version)
        await self._session.mutate(path, put)

    async def close(self) -> None:
        if self._session.is_closed:
            return
        # Before the session: tasks that ask a closed one fail, and a keeper that fails counts as a
        # defect.
        for follower in list(self._followers):
            await follower.end()
        await end_tasks(registration.keeper for registration in self._registrations)
        await self._session.close()

    def _node(self, value: bytes, stat: Any) -> Node:
        owner = stat.owner_session_id
        is_own = bool(owner) and owner == self._session.id
        return Node(value, stat.version, stat.ctime, is_own, stat.mtime)

    async def _stat(self, path: str, fire: Callable[[object], None]) -> Any:
        return await self._session.read(path, lambda: self._client.exists_async(path, watch=fire))

    def _on_session_renewed(self) -> None:
        """Register everything again: the old session's nodes are gone."""
        # Only marked: this runs within the session's state change, and an enrolment takes seconds.
        for registration in self._registrations:
            registration.lost.set()

    async def _follow(
        self,
        read: Callable[[Callable[[object], None]], Awaitable[Any]],
        changed: Callable[[Any], None],
    ) -> Callable[[], None]:
        follower: Follower[Any] = Follower(read, changed, self._session.post)
        await follower.start()
        self._followers.add(follower)

        def stop() -> None:
            self._followers.discard(follower)
            follower.stop()

        return stop

    async def _enroll(self, path: str, value: bytes) -> None:
        """Create an ephemeral node of this session at ``path``.

        A node of another session is waited for: a process that was killed and started again meets
        its own leftover. Creating again after a lost reply is safe: our own node is recognized.
        """
        loop = asyncio.get_running_loop()
        create = partial(self._client.create_async, path, value, ephemeral=True)
        deadline = loop.time() + self._session.timeout_s + _ENROLL_GRACE_S
        while True:
            try:
                await self._session.mutate(path, create)
                return
            except NodeExistsError:
                # The store does not say whose node it is. It may be ours, made by a request whose
                # reply was lost.
                node = await self.get(path)
                if node is not None and node.is_own:
                    return
                # A leftover ends with its session, at the latest by now: this one belongs to a live
                # process.
                if loop.time() >= deadline:
                    raise
            except MetadataUnavailableError:
                if loop.time() >= deadline:
                    raise
            await asyncio.sleep(_ENROLL_PAUSE_S)

    async def _withdraw(self, registration: _ZooKeeperRegistration) -> None:
        # Before the deletion: a session that is renewed meanwhile would bring the node back.
        self._registrations.discard(registration)
        await end_tasks([registration.keeper])
        node = None if self._session.is_closed else await self.get(registration.path)
        # After a session loss a new process of this id may have registered: its node is not ours to
        # delete.
        if node is not None and node.is_own:
            with contextlib.suppress(NoNodeError):
                await self.delete(registration.path)


class _ZooKeeperRegistration(Registration):
    """Re-creates its node in a task of its own whenever the session is a new one."""

    def __init__(self, store: ZooKeeperStore, path: str, value: bytes) -> None:
        self.path = path
        self.lost = asyncio.Event()
        """Set when the session under which the node was made is over."""
        self._store = store
        self._value = value
        self.keeper = asyncio.create_task(self._keep(), name=f"keep {path}")

    async def withdraw(self) -> None:
        await self._store._withdraw(self)

    async def _keep(self) -> None:
        # Unbounded on purpose: a bookie that gave up would serve on and look dead.
        while True:
            await self.lost.wait()
            # Before the attempt: a session that ends during it must be noticed.
            self.lost.clear()
            try:
                await self._store._enroll(self.path, self._value)
                _LOGGER.info("registered again after a session loss; path=%s", self.path)
            except (MetadataUnavailableError, MetadataAccessError, StoreConflict) as failure:
                _LOGGER.warning("not registered: %r; path=%s", failure, self.path)
                self.lost.set()
                await asyncio.sleep(_KEEP_PAUSE_S)


def _add(transaction: Any, part: Operation) -> None:
    match part:
        case Create(path, value):
            transaction.create(path, value)
        case Put(path, value, expected_version):
            transaction.set_data(path, value, _exact(expected_version))
        case Delete(path, expected):
            transaction.delete(path, _exact_or_any(expected))
        case Check(path, expected):
            transaction.check(path, _exact_or_any(expected))


def _exact(version: int) -> int:
    """Guard against -1, which ZooKeeper takes for "any version"."""
    invariant(version >= 0, "versions start at 0")
    return version


def _exact_or_any(version: int | None) -> int:
    return -1 if version is None else _exact(version)
