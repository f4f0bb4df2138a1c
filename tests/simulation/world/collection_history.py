"""What the observer hears of garbage collection."""

from __future__ import annotations

from dataclasses import dataclass

from tests.simulation.world.history import Event


@dataclass(slots=True)
class Deleting(Event):
    """A bookie begins to write a tombstone for a range of ledgers."""

    bookie: str
    first: int
    last: int


@dataclass(slots=True)
class LogsRewritten(Event):
    """A bookie has copied what lives of some entry logs into a new one."""

    bookie: str
    directory: int
    log_ids: tuple[int, ...]


@dataclass(slots=True)
class Buried(Event):
    """A tombstone is durable, in the journal at first."""

    bookie: str
    first: int
    last: int
