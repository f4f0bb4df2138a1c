"""MetadataStore: the small compare-and-set interface the whole project stands on.

A store is a tree of versioned nodes with ZooKeeper's semantics: a node's version starts at 0 and
grows by one with every ``put``; ``multi`` applies all operations or none; ephemeral nodes vanish
with the session that made them. Paths are absolute, ``/``-separated, without a trailing slash.

A mutation has these outcomes, and callers must not take one for another:

* it returns: applied;
* it raises one of :class:`NodeExistsError`, :class:`NoNodeError`, :class:`BadVersionError`,
  :class:`NotEmptyError`: surely *not* applied, and why;
* it raises :class:`bookkeeper_metadata.errors.MetadataAccessError`: not applied, and no word about how the tree is: this
  user may not do it, or not even see it;
* it raises :class:`bookkeeper_metadata.errors.MetadataUnavailableError`: *unknown*. The caller reads back and
  compares a token of its own. No implementation ever retries a mutation by itself: a retry after a
  lost reply reports the caller's own success as a conflict (reliability of ``kazoo.retry``).
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence

from bookkeeper_metadata.foundation.closing import AsyncClosing
from bookkeeper_metadata.store.operations import Node, Operation


class Registration(ABC):
    """An ephemeral node that is created again by itself whenever its session is lost."""

    keeper: asyncio.Future[None]
    """The task that keeps the node. It ends only by ``withdraw`` or by a defect, and then the node is
    not created again: a process that served on would look dead."""

    @abstractmethod
    async def withdraw(self) -> None:
        """Delete the node and stop re-creating it."""


class MetadataStore(AsyncClosing):
    """What the project needs of ZooKeeper; see the module for the outcomes of a mutation.

    Every method may raise :class:`bookkeeper_metadata.errors.MetadataUnavailableError` and
    :class:`bookkeeper_metadata.errors.MetadataAccessError`, after ``close`` also
    :class:`bookkeeper_metadata.foundation.errors.ClientClosedError`. A value above ``VALUE_SIZE_BYTES_MAX`` is a
    ``ValueError``, and nothing was sent.
    """

    service: str
    """Which service this is, for messages, e.g. ``127.0.0.1:2181``."""

    @abstractmethod
    async def create(self, path: str, value: bytes, *, make_parents: bool = False) -> None:
        """Create a persistent node at version 0. ``make_parents`` creates missing ancestors, empty.

        Raises:
            NodeExistsError: it exists.
            NoNodeError: its parent does not, and ``make_parents`` is false.
        """

    @abstractmethod
    async def get(self, path: str) -> Node | None:
        """The node, or ``None`` when the store definitely answered that there is none."""

    @abstractmethod
    async def put(self, path: str, value: bytes, expected_version: int) -> int:
        """Replace the value at exactly ``expected_version``; returns the new version.

        Raises:
            NoNodeError, BadVersionError: not applied.
        """

    @abstractmethod
    async def delete(self, path: str, expected_version: int | None = None) -> None:
        """Delete a childless node.

        Raises:
            NoNodeError, BadVersionError, NotEmptyError: not applied.
        """

    @abstractmethod
    async def children(self, path: str) -> list[str] | None:
        """Names of the children, sorted; ``None`` when the node does not exist."""

    @abstractmethod
    async def multi(self, operations: Sequence[Operation]) -> None:
        """Apply all operations atomically, or none.

        Raises:
            NodeExistsError, NoNodeError, BadVersionError, NotEmptyError: the first that failed.
        """

    @abstractmethod
    async def sequence(self, path_prefix: str, value: bytes, *, ephemeral: bool = False) -> str:
        """Create ``path_prefix`` + a ten-digit number drawn by the store; returns the whole path.

        The number comes from the parent's own counter. After ``MetadataUnavailableError`` a node
        may exist under a number the caller never learns.

        Raises:
            NoNodeError: the parent does not exist.
        """

    @abstractmethod
    async def ephemeral(self, path: str, value: bytes) -> Registration:
        """Create a node that lives as long as this client, re-created after session loss.

        A leftover of an expired session of the same name is waited for up to the session timeout. Cancelled,
        it leaves no node behind as long as the store answers.

        Raises:
            NodeExistsError: it belongs to another live session.
        """

    @abstractmethod
    async def watch_children(
        self, path: str, changed: Callable[[list[str]], None]
    ) -> Callable[[], None]:
        """Call ``changed`` (on this event loop) with the children now and after every change.

        The first call is made before this returns; changes in quick succession are reported once.
        Returns a function that ends the watch. A missing node counts as one without children.
        """

    @abstractmethod
    async def watch(self, path: str, changed: Callable[[Node | None], None]) -> Callable[[], None]:
        """Call ``changed`` (on this event loop) with the node now and after every change.

        The first call is made before this returns. Changes in quick succession are reported once,
        as their last state; ``None`` is a node that does not exist. Losing the session ends no
        watch: the state then is reported anew. Returns a function that ends the watch.
        """

    @abstractmethod
    async def lock(self, path: str) -> Callable[[], Awaitable[None]]:
        """Wait for an exclusive lock at ``path``; returns the coroutine function that releases it.

        A lock is advice: a client that loses its session loses the lock without noticing, so what
        is done under it is still guarded by versions.
        """

    @abstractmethod
    async def sync(self, path: str) -> None:
        """Later reads of this session see everything committed before this call, by anyone."""

    @abstractmethod
    async def close(self) -> None:
        """End the session: ephemeral nodes vanish. Idempotent."""
