"""What an observer sees of the free space of disks, and of who takes new entries (see ``history``)."""

from __future__ import annotations

from dataclasses import dataclass

from tests.simulation.world.history import Event


@dataclass(slots=True)
class Looked(Event):
    """A bookie looked at its disk; told when what is free has come into another ``Band``."""

    bookie: str
    band: int


@dataclass(slots=True)
class WishHeard(Event):
    """A bookie was told whether somebody wants it to take no new entries."""

    bookie: str
    is_readonly: bool


@dataclass(slots=True)
class Sealed(Event):
    """What follows of this process is a start on a full disk: it may write nothing."""

    bookie: str


@dataclass(slots=True)
class Unsealed(Event):
    """There was room again: the same process starts anew."""

    bookie: str


@dataclass(slots=True)
class SealedWrote(Event):
    """A bookie changed something on the disk all the same."""

    bookie: str
    operation: str
    path: str


@dataclass(slots=True)
class EndedWithoutRoom(Event):
    """A full disk ended a bookie, though nobody else has taken of the disk since it looked last."""

    bookie: str
    reason: str


@dataclass(slots=True)
class NoRoomForCheckpoint(Event):
    """A checkpoint was not written, as the disk is full."""

    bookie: str


@dataclass(slots=True)
class Listed(Event):
    """A client was told which bookies are registered as writable."""

    client: str
    bookies: tuple[str, ...]


@dataclass(slots=True)
class Gentle(Event):
    """Nothing goes wrong in this run but disks that fill, and enough bookies never fill."""
