"""Payloads on their way into a log, and the listeners that get their outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from bookkeeper_metadata.foundation.errors import BookKeeperError
from spark_bookkeeper.log.format.position import Position

T = TypeVar("T")


class AppendListener(Protocol):
    """Gets the outcome of payloads that were pushed together."""

    def on_acknowledged(self, positions: Sequence[Position]) -> None:
        """The next of the payloads are in the log, at these positions."""

    def on_failed(self, error: BookKeeperError) -> None:
        """No further payload will be acknowledged. Called once."""


class Batch:
    """Payloads handed over together, perhaps to several ledgers; a listener itself, of a part that is sent again."""

    def __init__(self, payloads: Sequence[bytes], listener: AppendListener) -> None:
        self.payloads = payloads
        self.sent = 0
        self._listener = listener
        self._is_failed = False

    @property
    def is_sent(self) -> bool:
        """Whether all of them went to a ledger."""
        return self.sent == len(self.payloads)

    def on_acknowledged(self, positions: Sequence[Position]) -> None:
        """The next of the payloads are in the log, at these positions."""
        self._listener.on_acknowledged(positions)

    def on_failed(self, error: BookKeeperError) -> None:
        """No further payload will be acknowledged; passed on once, however many ledgers fail."""
        if not self._is_failed:
            self._is_failed = True
            self._listener.on_failed(error)


class _Completion(Generic[T]):
    """Completes a future, unless its caller gave it up."""

    def __init__(self, future: asyncio.Future[T]) -> None:
        self.future = future

    def on_failed(self, error: BookKeeperError) -> None:
        """See :class:`AppendListener`."""
        if not self.future.done():
            self.future.set_exception(error)


class One(_Completion[Position]):
    """Completes a future with the position of one payload."""

    def on_acknowledged(self, positions: Sequence[Position]) -> None:
        """See :class:`AppendListener`."""
        if not self.future.done():
            self.future.set_result(positions[0])


class Many(_Completion[list[Position]]):
    """Completes a future with the positions of all payloads together."""

    def __init__(self, count: int, future: asyncio.Future[list[Position]]) -> None:
        super().__init__(future)
        self._count = count
        self._positions: list[Position] = []

    def on_acknowledged(self, positions: Sequence[Position]) -> None:
        """See :class:`AppendListener`."""
        self._positions += positions
        if len(self._positions) == self._count and not self.future.done():
            self.future.set_result(self._positions)
