"""What a client counts of its ledgers' work; plain numbers, that cost an append next to nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from bookie_server.client.settings import PROMPT_S
from bookkeeper_metadata.foundation.measures import Durations
from bookkeeper_metadata.model import NO_ENTRY_ID


@dataclass(slots=True)
class ClientMeasures:
    """Since the client was made; its event loop counts, any thread may look."""

    added_entries: int = 0
    """Acknowledged ones."""
    adds: Durations = field(default_factory=Durations)
    """From append to acknowledgement, of one append at a time of each writer."""
    ended_writers: int = 0
    """That ended with an error."""
    ensemble_changes: int = 0
    read_bytes: int = 0
    """Of records, as bookies send them."""
    reads: Durations = field(default_factory=Durations)
    """Of runs of entries, a request or a few each."""
    creations: Durations = field(default_factory=Durations)
    openings: Durations = field(default_factory=Durations)
    recoveries: Durations = field(default_factory=Durations)
    """That closed the ledger."""


class AddMeter:
    """Counts for one writer on its event loop, and times one append at a time: to time each would cost each."""

    def __init__(self, measures: ClientMeasures) -> None:
        self._measures = measures
        self._counted = NO_ENTRY_ID
        self._timed: int | None = None
        self._begun_s = 0.0
        self._now_s = asyncio.get_running_loop().time

    def on_pushed(self, last_entry: int) -> None:
        """An append call that ends with this entry was made."""
        if self._timed is None:
            self._timed, self._begun_s = last_entry, self._now_s()

    def on_acknowledged(self, last_entry: int) -> None:
        """Every entry up to ``last_entry`` is acknowledged."""
        self._measures.added_entries += last_entry - self._counted
        self._counted = last_entry
        if self._timed is not None and last_entry >= self._timed:
            self._measures.adds.add(self._now_s() - self._begun_s)
            self._timed = None


class Promptness:
    """Whether what one writer sends is acknowledged soon. One run at a time is timed: to time each would cost each."""

    def __init__(self) -> None:
        self._timed: int | None = None
        self._begun_s = 0.0
        self._now_s = asyncio.get_running_loop().time

    def on_sent(self, last_entry: int) -> None:
        """A run, or a part of one, that ends with this entry is sent."""
        if self._timed is None:
            self._timed, self._begun_s = last_entry, self._now_s()

    def on_acknowledged(self, last_entry: int) -> bool | None:
        """Every entry up to this one is acknowledged: whether soon; ``None``: none that was timed is among them."""
        if self._timed is None or last_entry < self._timed:
            return None
        self._timed = None
        return self._now_s() - self._begun_s <= PROMPT_S


@contextmanager
def timed(durations: Durations) -> Iterator[None]:
    """Count how long a block takes that does not fail."""
    now_s = asyncio.get_running_loop().time
    begun_s = now_s()
    yield
    durations.add(now_s() - begun_s)
