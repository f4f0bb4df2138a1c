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
class Dropping(Event):
    """A bookie begins to forget what it has of a ledger, for others hold its copies."""

    bookie: str
    ledger: int


@dataclass(slots=True)
class Dropped(Event):
    """That is durable, in the journal at first."""

    bookie: str
    ledger: int


@dataclass(slots=True)
class DropUndone(Event):
    """A crash came between the two, and the entries are there still."""

    bookie: str
    ledger: int


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
