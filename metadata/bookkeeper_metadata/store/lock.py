"""An exclusive lock over any metadata store, first come first served.

Each waiter makes an ephemeral sequential node under the lock's path; the lowest number holds the
lock, every other watches only the one before it, so a release wakes one waiter. A node's name begins
with a mark no other waiter uses: after a lost reply the waiter finds its own node again instead of
blocking itself. Losing the session loses the lock without notice (see ``MetadataStore.lock``).
Source: the ZooKeeper lock recipe.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable

from bookkeeper_metadata.errors import MetadataAccessError, MetadataUnavailableError
from bookkeeper_metadata.foundation.errors import ClientClosedError
from bookkeeper_metadata.store.interface import MetadataStore
from bookkeeper_metadata.store.operations import NodeExistsError, NoNodeError

_LOST_REPLIES_MAX = 5
"""Lost replies in a row after which a waiter gives up."""


async def acquire_lock(store: MetadataStore, path: str, mark: str) -> Callable[[], Awaitable[None]]:
    """Wait until the lock at ``path`` is held; ``mark`` is unique to this call among all clients.

    Returns the coroutine function that releases it. Cancelled, it leaves no node behind as long as
    the store answers; else the node goes with the session.

    Raises:
        MetadataUnavailableError: the store did not answer; the lock is not held.
    """
    waiter = _Marked(store, path, f"{mark}-")
    try:
        await waiter.wait()
    except BaseException:
        # If it is the store that failed, the end of the session deletes the node.
        with contextlib.suppress(MetadataUnavailableError, MetadataAccessError, ClientClosedError):
            await waiter.release()
        raise
    return waiter.release


class Waiter(ABC):
    """One place in a queue of ephemeral sequential nodes; the first in it has what all wait for."""

    def __init__(self, store: MetadataStore, path: str, prefix: str, value: bytes = b"") -> None:
        """``prefix``: of the names of its nodes, before the number."""
        self._store = store
        self._path = path
        self._prefix = prefix
        self._value = value

    @abstractmethod
    async def _is_mine(self, name: str) -> bool:
        """Whether this waiter made the node of that name."""

    async def wait(self) -> None:
        """Return once this is the first of the queue."""
        while True:
            mine, before = await self._place()
            # At the first look, and again whenever the session was lost: its node went with it.
            if mine is None:
                await self._enqueue()
            elif before is None:
                return
            else:
                # The one before may have given up without ever holding the lock, so this is no turn
                # yet: look at the whole queue again.
                await self._wait_until_gone(f"{self._path}/{before}")

    async def release(self) -> None:
        """Delete every node of this waiter; idempotent."""
        for name in await self._store.children(self._path) or []:
            if await self._is_mine(name):
                with contextlib.suppress(NoNodeError):
                    await self._store.delete(f"{self._path}/{name}")

    async def is_first(self) -> bool:
        """Whether it still is, as far as the store says now; losing the session is not noticed else."""
        mine, before = await self._place()
        return mine is not None and before is None

    async def _place(self) -> tuple[str | None, str | None]:
        """This waiter's node and the one before it in the queue."""
        names = sorted(await self._store.children(self._path) or [], key=_number)
        for index, name in enumerate(names):
            if await self._is_mine(name):
                return name, names[index - 1] if index else None
        return None, None

    async def _enqueue(self) -> None:
        for attempt in range(1, _LOST_REPLIES_MAX + 1):
            try:
                await self._store.sequence(
                    f"{self._path}/{self._prefix}", self._value, ephemeral=True
                )
                return
            except NoNodeError:
                with contextlib.suppress(NodeExistsError):
                    await self._store.create(self._path, b"", make_parents=True)
            except MetadataUnavailableError:
                if attempt == _LOST_REPLIES_MAX:
                    raise
                # The session may have moved to a server that lags behind and does not show it yet.
                await self._store.sync(self._path)
                if (await self._place())[0] is not None:
                    return

    async def _wait_until_gone(self, path: str) -> None:
        gone = asyncio.Event()
        stop = await self._store.watch(path, lambda node: gone.set() if node is None else None)
        try:
            await gone.wait()
        finally:
            stop()


class _Marked(Waiter):
    """One whose mark no other uses."""

    async def _is_mine(self, name: str) -> bool:
        return name.startswith(self._prefix)


def _number(name: str) -> int:
    """A node's place in the queue: the ten digits that the store appended to its name."""
    return int(name[-10:])
