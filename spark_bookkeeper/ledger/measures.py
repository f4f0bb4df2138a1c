"""What a client counts of its ledgers' work; plain numbers, that cost an append next to nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

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


class SampledTime:
    """How long entries of one writer take, on its event loop; one at a time: to time each would cost each."""

    def __init__(self) -> None:
        self._timed: int | None = None
        self._begun_s = 0.0
        self._now_s = asyncio.get_running_loop().time

    def begin(self, last_entry: int) -> None:
        """Something that ends with this entry begins; it is timed if nothing is."""
        if self._timed is None:
            self._timed, self._begun_s = last_entry, self._now_s()

    def end(self, last_entry: int) -> float | None:
        """All up to this entry has ended: what was timed took so many seconds; ``None``: it is not among them."""
        if self._timed is None or last_entry < self._timed:
            return None
        self._timed = None
        return self._now_s() - self._begun_s


class AddMeter:
    """Counts for one writer on its event loop, and times some of its appends."""

    def __init__(self, measures: ClientMeasures) -> None:
        self._measures = measures
        self._counted = NO_ENTRY_ID
        self._time = SampledTime()

    def on_pushed(self, last_entry: int) -> None:
        """An append call that ends with this entry was made."""
        self._time.begin(last_entry)

    def on_acknowledged(self, last_entry: int) -> None:
        """Every entry up to ``last_entry`` is acknowledged."""
        self._measures.added_entries += last_entry - self._counted
        self._counted = last_entry
        if (took_s := self._time.end(last_entry)) is not None:
            self._measures.adds.add(took_s)


@contextmanager
def timed(durations: Durations) -> Iterator[None]:
    """Count how long a block takes that does not fail."""
    now_s = asyncio.get_running_loop().time
    begun_s = now_s()
    yield
    durations.add(now_s() - begun_s)
