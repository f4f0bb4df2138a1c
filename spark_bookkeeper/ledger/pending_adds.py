"""PendingAdds: the appends that wait for an acknowledgement, completed once and in entry order.

A completion stands for one append call, of one entry or many. It is called with how far the ledger
is acknowledged until it says that it is complete; at the writer's end all that are left get its error.
Two deadlines say how long they may wait: for their ack quorum, and for bookies to come back.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from bookkeeper_metadata.foundation.errors import BookKeeperError
from bookkeeper_metadata.model import NO_ENTRY_ID
from spark_bookkeeper.ledger.errors import NotEnoughBookiesError

T = TypeVar("T")

_CHANGE_S = 0.05
"""What a change of an ensemble takes, about; longer ones are slow for other reasons than bookies."""
_LOGGER = logging.getLogger(__name__)

AppendCallback = Callable[[int, BookKeeperError | None], bool]
"""``(acknowledged up to, error)`` -> whether it is complete: the outcome of each of its entries is known."""


def completion_of(future: asyncio.Future[T], last_entry: int, result: T) -> AppendCallback:
    """Completes ``future`` with ``result`` once ``last_entry`` is acknowledged, or with the error."""

    def complete(acknowledged: int, error: BookKeeperError | None) -> bool:
        if error is None and last_entry > acknowledged:
            return False
        if not future.done():  # a caller may have cancelled it
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)
        return True

    return complete


class PendingAdds:
    """The queue of one writer."""

    def __init__(self) -> None:
        self._completions: deque[AppendCallback] = deque()

    def push(self, complete: AppendCallback) -> None:
        """Queue the completion of an append call, behind those of earlier calls."""
        self._completions.append(complete)

    def on_acknowledged(self, last_entry: int) -> None:
        """Every entry up to ``last_entry`` is acknowledged."""
        self._complete(last_entry, None)

    def fail(self, error: BookKeeperError) -> None:
        """Complete all that are left with ``error``: they will not be acknowledged."""
        self._complete(NO_ENTRY_ID, error)

    def _complete(self, acknowledged: int, error: BookKeeperError | None) -> None:
        completions = self._completions
        # Each ends behind the one before it, so the first that is not complete holds up only such
        # as are not complete either.
        while completions and completions[0](acknowledged, error):
            completions.popleft()


@dataclass(slots=True)
class _Push:
    last_entry: int
    deadline_s: float


class QuorumDeadline:
    """Calls ``on_expired`` once an entry waited longer than ``timeout_ms`` for its ack quorum."""

    def __init__(self, timeout_ms: int, on_expired: Callable[[], None]) -> None:
        """``on_expired`` is called on the running loop; never if ``timeout_ms`` is 0."""
        self._loop = asyncio.get_running_loop()
        self._timeout_s = timeout_ms / 1000
        self._on_expired = on_expired
        self._pushes: deque[_Push] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def on_pushed(self, last_entry: int) -> None:
        """An append call that ends with this entry was made."""
        if not self._timeout_s:
            return
        self._pushes.append(_Push(last_entry, self._loop.time() + self._timeout_s))
        # One timer, for the oldest: no later one can expire before it.
        if self._timer is None:
            self._timer = self._loop.call_at(self._pushes[0].deadline_s, self._look)

    def on_acknowledged(self, last_entry: int) -> None:
        """Every entry up to ``last_entry`` is acknowledged."""
        while self._pushes and self._pushes[0].last_entry <= last_entry:
            self._pushes.popleft()

    def cancel(self) -> None:
        """Forget every entry: none is waited for any more."""
        self._pushes.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        # It was set for a push that was acknowledged since. Moving it with each acknowledgement
        # would be work for every append; looking again here is work once in a timeout.
        if not self._pushes:
            return
        if self._pushes[0].deadline_s <= self._loop.time():
            self._on_expired()
        else:
            self._timer = self._loop.call_at(self._pushes[0].deadline_s, self._look)


class TrialLimit:
    """How long a writer tries bookies, one behind the other, while entries wait and none is acknowledged.

    It need not be short of them: of those that are registered and silent there may always be one that has not failed it yet.
    Counted from the first that took the place of another; what the metadata service takes for a change is not.
    """

    def __init__(self, timeout_ms: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._timeout_s = timeout_ms / 1000
        self._tried_s = 0.0
        self._since_s: float | None = None
        """Since when the present ensemble is tried; ``None``: it has not changed, or is about to."""
        self._changing_since_s = 0.0

    def on_failed(self) -> bool:
        """A bookie has failed and is about to be replaced; returns whether it was the last to be tried."""
        self._changing_since_s = now_s = self._loop.time()
        if self._since_s is not None:
            self._tried_s += now_s - self._since_s
            self._since_s = None
        return self._tried_s >= self._timeout_s

    def on_changed(self, *, is_replaced: bool) -> None:
        """Another has taken its place, or there was none: then bookies are waited for, which others count."""
        if not is_replaced:
            return
        now_s = self._loop.time()
        self._tried_s += min(now_s - self._changing_since_s, _CHANGE_S)
        self._since_s = now_s

    def restart(self) -> None:
        """An entry was acknowledged, or the first is waited for."""
        self._tried_s, self._since_s = 0.0, None


class ShortageDeadline:
    """Calls ``on_expired`` when a writer is short of bookies ``timeout_ms`` after it first was.

    In between it may seem to have enough: it tries some that turn out to be as dead as the others.
    """

    def __init__(self, ledger_id: int, timeout_ms: int, on_expired: Callable[[], None]) -> None:
        """``on_expired`` is called on the running loop."""
        self._loop = asyncio.get_running_loop()
        self._ledger_id = ledger_id
        self._timeout_s = timeout_ms / 1000
        self._on_expired = on_expired
        self._until_s: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_running(self) -> bool:
        """Whether the writer was short of bookies, and has not been seen to have enough since."""
        return self._until_s is not None

    def on_shortage(self, shortage: NotEnoughBookiesError) -> None:
        """The writer is short of bookies, from now on or still."""
        if self._until_s is None:
            self._until_s = self._loop.time() + self._timeout_s
            _LOGGER.warning(
                "waiting for bookies up to %g s; ledger_id=%d %s",
                self._timeout_s,
                self._ledger_id,
                shortage,
            )
        # After its time this calls at once: the last try has failed too.
        if self._timer is None:
            self._timer = self._loop.call_at(self._until_s, self._expire)

    def cancel(self) -> None:
        """Enough bookies are back, or the writer has ended."""
        self._until_s = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        self._timer = None
        self._on_expired()
