"""What happened in a simulated run: events in one order, as seen by an observer outside the system.

Clients report what they asked and were told, bookies what became durable and what they answered,
the metadata tree every commit. Nothing in the system under test reads any of this.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import TypeVar

from bookie_server.wire.messages import Status
from bookie_server.wire.stripe import Stripe
from bookkeeper_metadata.model import LedgerMetadata


@dataclass(slots=True, kw_only=True)
class Event:
    """``at_us`` and ``index`` are the history's to set."""

    at_us: int = field(default=0, repr=False)
    index: int = field(default=0, repr=False)


@dataclass(slots=True)
class LedgerEvent(Event):
    """Something between a client and a ledger."""

    client: str
    ledger: int


@dataclass(slots=True)
class Appended(LedgerEvent):
    """A client handed entries to its writer; ``entry`` is the id of the first."""

    entry: int
    payloads: tuple[bytes, ...]


@dataclass(slots=True)
class Acked(LedgerEvent):
    """A writer was told that this entry is stored."""

    entry: int


@dataclass(slots=True)
class WriterEnded(LedgerEvent):
    """A writer was told that it ended, with the error's class name."""

    error: str


@dataclass(slots=True)
class WriterClosed(LedgerEvent):
    """A writer's close returned; ``last`` is what it takes for the ledger's last entry."""

    last: int


@dataclass(slots=True)
class RecoveryBegun(LedgerEvent):
    """A client opens with recovery."""


@dataclass(slots=True)
class RecoveryEnded(LedgerEvent):
    """That returned; ``error`` is empty, or the class of what it raised."""

    error: str


@dataclass(slots=True)
class Opened(LedgerEvent):
    """A client holds a read handle; ``last`` is its LAC."""

    is_closed: bool
    last: int


@dataclass(slots=True)
class LacSeen(LedgerEvent):
    """A reader was told how far the ledger is confirmed."""

    is_closed: bool
    lac: int


@dataclass(slots=True)
class ReadEntry(LedgerEvent):
    """A reader was given this entry."""

    entry: int
    payload: bytes


@dataclass(slots=True)
class ReadUnconfirmed(LedgerEvent):
    """A reader that asked beyond the LAC was given this entry; a recovery may cut it off yet."""

    entry: int
    payload: bytes


@dataclass(slots=True)
class TailEnded(LedgerEvent):
    """A tail ended by itself behind entry ``last``, because the ledger is closed or nothing came."""

    is_closed: bool
    last: int


@dataclass(slots=True)
class Refused(LedgerEvent):
    """An operation of a client failed with an error of the public hierarchy."""

    operation: str
    error: str


@dataclass(slots=True)
class AddArrived(Event):
    """An add reached a bookie."""

    bookie: str
    client: str
    ledger: int
    first: int
    last: int
    is_recovery: bool


@dataclass(slots=True)
class AddReplied(Event):
    """A bookie answered an add."""

    bookie: str
    ledger: int
    first: int
    last: int
    is_recovery: bool
    status: Status


@dataclass(slots=True)
class Durable(Event):
    """A bookie synced an entry; ``crc`` is of the whole record, header and digest included."""

    bookie: str
    ledger: int
    entry: int
    crc: int


@dataclass(slots=True)
class FenceDurable(Event):
    """A bookie synced a fence, or a limbo that fences."""

    bookie: str
    ledger: int


@dataclass(slots=True)
class ReadReplied(Event):
    """A bookie answered a read: ``found`` are (entry, crc of the record) pairs."""

    since: int
    """The history's length when the request arrived."""
    bookie: str
    client: str
    ledger: int
    stripe: Stripe | None
    is_fencing: bool
    found: tuple[tuple[int, int], ...]
    missing: tuple[tuple[int, int, Status], ...]


@dataclass(slots=True)
class LacReplied(Event):
    """A bookie answered a LAC read that arrived at ``since``."""

    since: int
    bookie: str
    client: str
    ledger: int
    is_fencing: bool
    status: Status


@dataclass(slots=True)
class FencingReadSent(Event):
    """A recovering client asks a bookie for entries, fencing it."""

    client: str
    bookie: str
    ledger: int


@dataclass(slots=True)
class ReadReceived(Event):
    """What a client was answered, or UNREACHABLE."""

    client: str
    bookie: str
    ledger: int
    is_fencing: bool
    missing: tuple[tuple[int, int, Status], ...]


@dataclass(slots=True)
class LacReceived(Event):
    """What a client was answered to a LAC read."""

    client: str
    bookie: str
    ledger: int
    is_fencing: bool
    status: Status


@dataclass(slots=True)
class Committed(LedgerEvent):
    """The metadata tree took a version of a ledger's metadata from this client."""

    version: int
    metadata: LedgerMetadata


@dataclass(slots=True)
class Deleted(LedgerEvent):
    """The metadata tree deleted a ledger."""


@dataclass(slots=True)
class BookieUp(Event):
    """A bookie serves; what its storage holds, by ledger in ascending order."""

    bookie: str
    incarnation: int
    held: tuple[tuple[int, tuple[int, ...]], ...]
    fenced: tuple[int, ...]
    limbo: tuple[int, ...]
    groups_torn: int
    groups_replayed: int


@dataclass(slots=True)
class BookieDown(Event):
    """A bookie's process ended; how."""

    bookie: str
    incarnation: int
    how: str


@dataclass(slots=True)
class StartRefused(Event):
    """A bookie's process ended before it served: it may not start on these directories."""

    bookie: str
    incarnation: int
    path: str


@dataclass(slots=True)
class DisksHarmed(Event):
    """The directories in a machine are not its bookie's newest ones; nobody may serve on them."""

    bookie: str
    how: str
    directories: tuple[str, ...]


@dataclass(slots=True)
class DisksSettled(Event):
    """An operator has brought the right directories, or said that they are lost."""

    bookie: str
    how: str


@dataclass(slots=True)
class RivalRefused(Event):
    """Another process under a bookie's id was refused."""

    bookie: str
    how: str
    error: str


@dataclass(slots=True)
class Superseded(Event):
    """Another process has claimed a bookie's id, on other directories: ``incarnation`` has to end."""

    bookie: str
    incarnation: int
    is_lawful: bool


@dataclass(slots=True)
class Injected(Event):
    """A fault of the named class was injected."""

    fault: str
    what: str


@dataclass(slots=True)
class Damaged(Event):
    """Stored bytes of a bookie were damaged: what it held may be lost, what it says must not lie."""

    bookie: str
    path: str


@dataclass(slots=True)
class PhaseBegun(Event):
    """The run is in its next phase."""

    phase: str


E = TypeVar("E", bound=Event)
Listener = Callable[[Event], None]


class History:
    """Append-only; listeners hear of an event once it is recorded."""

    def __init__(self, now_us: Callable[[], int] = lambda: 0) -> None:
        self.events: list[Event] = []
        self.listeners: list[Listener] = []
        self.now_us = now_us

    def record(self, event: Event) -> None:
        """Put an event at the end."""
        event.at_us = self.now_us()
        event.index = len(self.events)
        self.events.append(event)
        for listener in self.listeners:
            listener(event)

    def of(self, kind: type[E]) -> list[E]:
        """Events of one kind, in order."""
        return [event for event in self.events if type(event) is kind]

    def trace(self) -> list[str]:
        """A line for each event."""
        return [f"{event.at_us:>10} {_line(event)}" for event in self.events]

    def hash(self) -> str:
        """Equal for equal histories, in whatever process."""
        digest = hashlib.sha256()
        for line in self.trace():
            digest.update(line.encode() + b"\n")
        return digest.hexdigest()[:16]


def _line(event: Event) -> str:
    facts = (getattr(event, spec.name) for spec in fields(event) if spec.repr)
    return f"{type(event).__name__} {' '.join(map(_fact, facts))}"


def _fact(fact: object) -> str:
    if isinstance(fact, Status):
        return fact.name
    if isinstance(fact, LedgerMetadata):
        fragments = " ".join(f"{f.first_entry}:{','.join(f.ensemble)}" for f in fact.fragments)
        quorum = f"{fact.ensemble_size}/{fact.write_quorum}/{fact.ack_quorum}"
        return f"{quorum} {fact.state.name} last={fact.last_entry} [{fragments}]"
    if isinstance(fact, bytes):
        return f"{bytes(fact[:24])!r}+{len(fact)}"
    if isinstance(fact, tuple):
        return f"({' '.join(map(_fact, fact))})"
    return str(fact)
