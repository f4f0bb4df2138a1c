"""A watch that outlives what it watches with.

ZooKeeper's watches fire once and end with the connection. A follower sets a new one with every read,
reads again whenever one fired, for any reason, and reports what differs from its last report.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from bookkeeper_metadata.errors import MetadataAccessError, MetadataUnavailableError

T = TypeVar("T")
_LOGGER = logging.getLogger(__name__)
_RETRY_PAUSE_S = 0.5

Fire = Callable[[object], None]
"""What a one-shot watch calls, from any thread."""


class Follower(Generic[T]):
    """Calls ``changed`` on the event loop it was made on; ``post`` brings other threads there."""

    def __init__(
        self,
        read: Callable[[Fire], Awaitable[T]],
        changed: Callable[[T], None],
        post: Callable[..., None],
    ) -> None:
        self._read = read
        self._changed = changed
        self._post = post
        self._fired = asyncio.Event()
        self._is_shut_out = False
        """Whether the last read was refused, which is said once."""
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Read and report for the first time, then follow."""
        state = await self._read(self._fire)
        self._changed(state)
        self._task = asyncio.create_task(self._follow(state), name="follow metadata")

    def stop(self) -> None:
        """Report nothing from now on."""
        if self._task is not None:
            self._task.cancel()

    async def end(self) -> None:
        """Stop, and wait until nothing runs any more."""
        self.stop()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    def _fire(self, event: object) -> None:
        # What kind of event it was is no use: a lost connection fires every watch as well, and
        # several changes may have come together by now. Only reading again tells.
        self._post(self._fired.set)

    async def _follow(self, last: T) -> None:
        while True:
            await self._fired.wait()
            # Before the read: a watch that fires during it is about something the read may not have
            # seen.
            self._fired.clear()
            try:
                state = await self._read(self._fire)
            except (MetadataUnavailableError, MetadataAccessError) as failure:
                # The watch may be gone with the connection; only a read sets a new one. And permissions that were
                # taken away may come back; until then nothing is reported, least of all that nothing is there.
                is_new = not self._is_shut_out
                self._is_shut_out = isinstance(failure, MetadataAccessError)
                if self._is_shut_out and is_new:
                    _LOGGER.warning("not followed now. detail=%s", failure)
                self._fired.set()
                await asyncio.sleep(_RETRY_PAUSE_S)
                continue
            self._is_shut_out = False
            if state == last:
                continue
            last = state
            try:
                self._changed(state)
            except Exception:
                _LOGGER.exception("a metadata watcher failed; it stays in force")
