"""What an observer sees of bookies that get back what they lost (see ``history``)."""

from __future__ import annotations

from dataclasses import dataclass

from tests.simulation.world.history import Event


@dataclass(slots=True)
class LimboEnded(Event):
    """A bookie says of a ledger again what it has not."""

    bookie: str
    ledger: int


@dataclass(slots=True)
class DamageMarked(Event):
    """A bookie that can read not all that it should hold of a ledger says so."""

    bookie: str
    ledger: int
    is_limbo: bool
