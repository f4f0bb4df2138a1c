"""What happened in a commit world: every step of the protocol, as an observer of the truth saw it.

Events carry what stood in the tree at that very moment, whatever anybody believed, so that checkers
are plain functions of a history and a doctored history is a handful of lines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256

from spark_bookkeeper.log.format.epoch import SeenTable


@dataclass(frozen=True, slots=True, repr=False)
class Actor:
    """A process of the world: what it is there for, and for which write."""

    name: str
    kind: str
    """driver, task, commit, abort, gc, truncate, writer, reader, optimize, rewrite, retain,
    consumer, end."""
    job: str = ""
    epoch: int = -1
    partition: int = -1
    task_attempt_id: int = -1

    def __repr__(self) -> str:
        return self.name


NOBODY = Actor("nobody", "end")


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened."""


@dataclass(frozen=True, slots=True)
class Act(Event):
    """What a process did."""

    by: Actor


@dataclass(frozen=True, slots=True)
class JobBegun(Event):
    """A write exists, with the rows it shall add; a batch planned again is the same job."""

    job: str
    rows: tuple[str, ...]
    column: str = ""
    """What it adds to the log's schema."""


@dataclass(frozen=True, slots=True)
class Planned(Act):
    """A driver drew an epoch."""

    epoch: int
    overwritten: SeenTable | None = None
    """What it overwrites, as it saw it."""


@dataclass(frozen=True, slots=True)
class Announced(Act):
    """A claim announced its epoch under its job, or found that another attempt had."""

    epoch: int
    siblings: tuple[int, ...]
    """The job's other epochs that were announced then."""


@dataclass(frozen=True, slots=True)
class Withdrawn(Act):
    """The node by which an epoch was announced under its job went."""

    epoch: int


@dataclass(frozen=True, slots=True)
class LedgerMade(Act):
    """A ledger came about."""

    ledger: int
    epoch: int
    """The token it is under; -1: a writer's outside Spark, under the head."""
    token: str
    """State of that token then; empty: there was none."""
    siblings: tuple[int, ...] = ()
    """The job's other epochs that were announced then."""


@dataclass(frozen=True, slots=True)
class LedgerClosed(Act):
    """Its own writer closed a ledger, with these rows in it."""

    ledger: int
    rows: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Fenced(Act):
    """Somebody ended another's ledger, which holds these rows then."""

    ledger: int
    token: str
    rows: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LedgerGone(Act):
    """A ledger was deleted."""

    ledger: int
    token: str
    """State of the token it is under, if it still is under one."""
    is_visible: bool
    is_kept: bool
    """In garbage that had not expired."""


@dataclass(frozen=True, slots=True)
class Unnamed(Act):
    """A ledger exists that neither a token, nor the log, nor garbage names any more."""

    ledger: int


@dataclass(frozen=True, slots=True)
class TokenEnded(Act):
    """A token left LIVE, or vanished (state empty)."""

    epoch: int
    before: str
    state: str
    is_due: bool
    """Its transaction was stored, or it was older than any job may be."""
    maker: str = ""
    """Name of who drew it."""


@dataclass(frozen=True, slots=True)
class Part:
    """A range of the log."""

    ledger: int
    first_row: int
    rows: int
    exists: bool = True
    """Whether the ledger does."""
    columns: tuple[str, ...] | None = ()
    """Of its schema; ``None``: the log has no such schema."""


@dataclass(frozen=True, slots=True)
class HeadMoved(Act):
    """The head changed: all that is visible from then on."""

    version: int
    base_row: int
    next_row: int
    parts: tuple[Part, ...]
    opened: int = -1
    """The ledger a writer outside Spark holds open."""
    committed: int = -1
    """The epoch whose token became COMMITTED in the same change."""
    was: str = ""
    """The state that token had before."""
    is_overwrite: bool = False
    """Everything before was dropped."""
    missing: tuple[str, ...] = ()
    """Chunks it references that are not there."""
    columns: tuple[str, ...] | None = ()
    """Of the newest schema."""
    held_row: int = -1
    """The first row that a live consumer needed then; -1: there was none."""


@dataclass(frozen=True, slots=True)
class ChunkGone(Act):
    """A chunk was deleted."""

    chunk: str
    token: str
    is_referenced: bool
    """By head or garbage."""


@dataclass(frozen=True, slots=True)
class CommitCalled(Act):
    """A driver asked for a commit."""

    epoch: int
    job: str
    ledgers: tuple[int, ...]
    is_whole: bool
    """No message was missing, all of one write."""
    is_stored: bool = False
    """Its very transaction was the last one stored of its application."""


@dataclass(frozen=True, slots=True)
class CommitEnded(Act):
    """What the driver was told."""

    epoch: int
    job: str
    outcome: str
    """COMMITTED, REPLAYED, or the error's name."""
    is_definite: bool = False
    token: str = ""
    """State of its token by then."""
    is_stored: bool = False
    """As in :class:`CommitCalled`."""


@dataclass(frozen=True, slots=True)
class Swept(Act):
    """The sweep after a commit returned, and nothing was lost on its way."""

    live: tuple[int, ...]
    """Other epochs of the job, announced before it began, whose tokens are LIVE still."""


@dataclass(frozen=True, slots=True)
class DeadRead(Act):
    """A process read that an epoch's token is DEAD."""

    epoch: int


@dataclass(frozen=True, slots=True)
class CommitSent(Act):
    """A commit's multi left its process."""

    epoch: int


@dataclass(frozen=True, slots=True)
class BatchDone(Event):
    """Spark noted a write as done and will never run it again."""

    job: str


@dataclass(frozen=True, slots=True)
class Read(Act):
    """A reader got rows."""

    from_row: int
    to_row: int
    rows: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReadRefused(Act):
    """A reader was told that rows are not there."""

    from_row: int
    to_row: int
    was_there: bool
    """All of them were in the log from before it asked until it was told."""


@dataclass(frozen=True, slots=True)
class Left(Event):
    """What is left when nobody works any more and two collections found nothing to wait for."""

    what: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Stuck(Event):
    """Something that must end did not."""

    what: str


@dataclass(frozen=True, slots=True)
class Escaped(Event):
    """An error came out of the product that none of its callers expects."""

    error: str


@dataclass(slots=True)
class History:
    """The events of one run in order, and how often each situation came about."""

    now_us: Callable[[], int] = lambda: 0
    events: list[Event] = field(default_factory=list)
    marks: Counter[str] = field(default_factory=Counter)
    trace: list[str] = field(default_factory=list)
    """If it is traced: events, metadata operations and faults in order, a line each."""
    is_traced: bool = False
    prefix: str = ""
    """Left out of notes: the path of the log all is about."""

    def record(self, event: Event) -> None:
        """Add an event that happens now."""
        self.events.append(event)
        if self.is_traced:
            self.trace.append(f"{self.now_us() / 1e6:10.6f} {event}")

    def note(self, text: str) -> None:
        """Add a line to the trace."""
        if self.is_traced:
            text = text.replace(self.prefix, "") if self.prefix else text
            self.trace.append(f"{self.now_us() / 1e6:10.6f}   {text}")

    def hash(self) -> str:
        """Equal for equal runs."""
        return sha256("\n".join(map(str, self.events)).encode()).hexdigest()[:16]
