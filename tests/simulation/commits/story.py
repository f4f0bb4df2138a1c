"""What a history says, sorted for the checkers: who wrote what, what became visible when and by whom.

Everything is worked out from the events alone, by index into the history.
"""

from __future__ import annotations

from dataclasses import dataclass

from spark_bookkeeper.log.format.epoch import SeenTable
from tests.simulation.commits.history import (
    NOBODY,
    Actor,
    BatchDone,
    CommitCalled,
    Fenced,
    HeadMoved,
    History,
    JobBegun,
    LedgerClosed,
    LedgerMade,
    Part,
    Planned,
)


@dataclass(frozen=True, slots=True)
class Added:
    """A range that was not in the head before."""

    index: int
    """Of the event."""
    by: Actor
    part: Part
    rows: tuple[str, ...]
    job: str
    """Empty: a writer's outside Spark."""
    epoch: int
    """Of the attempt that made the ledger; -1 outside Spark."""
    committed: int
    was: str
    """The epoch committed in that change, and the state its token had before."""

    @property
    def ledger(self) -> int:
        return self.part.ledger

    @property
    def first_row(self) -> int:
        return self.part.first_row


class Story:
    """Made once per history; read by all checkers."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.source: dict[str, tuple[str, ...]] = {}
        self.columns: dict[str, str] = {}
        """Job -> the column it adds."""
        self.done: list[str] = []
        self.makers: dict[int, Actor] = {}
        """Ledger -> who made it."""
        self.outside: set[int] = set()
        """Ledgers made under the head, by writers outside Spark."""
        self.content: dict[int, tuple[str, ...]] = {}
        self.owners: dict[int, Actor] = {}
        """Epoch -> who planned it; others are of single changes of the head."""
        self.overwrites: dict[int, SeenTable] = {}
        """Epoch -> the table that its plan saw, if it overwrites."""
        self.added: list[Added] = []
        self._calls: list[tuple[int, CommitCalled]] = []
        self._rows: dict[int, str] = {}
        seen: set[tuple[int, int]] = set()
        for index, event in enumerate(history.events):
            match event:
                case JobBegun():
                    self.source[event.job] = event.rows
                    self.columns[event.job] = event.column
                case Planned():
                    self.owners[event.epoch] = event.by
                    if event.overwritten is not None:
                        self.overwrites[event.epoch] = event.overwritten
                case LedgerMade():
                    self.makers[event.ledger] = event.by
                    if event.epoch < 0:
                        self.outside.add(event.ledger)
                case LedgerClosed() | Fenced():
                    self.content[event.ledger] = event.rows
                case CommitCalled():
                    self._calls.append((index, event))
                case BatchDone():
                    self.done.append(event.job)
                case HeadMoved():
                    self._moved(index, event, seen)
                case _:
                    pass

    def offered(self, epoch: int, before: int) -> set[int]:
        """Ledgers that whole commits of an epoch had named by then."""
        return {
            ledger
            for index, call in self._calls
            if index < before and call.epoch == epoch and call.is_whole
            for ledger in call.ledgers
        }

    def was_stored(self, by: Actor, before: int) -> bool:
        """Whether a process called its commit when its transaction was the last one stored."""
        return any(i < before and call.by == by and call.is_stored for i, call in self._calls)

    def offered_rows(self, epoch: int) -> bool:
        """Whether the commits of an epoch had anything to add."""
        return any(call.ledgers for _, call in self._calls if call.epoch == epoch)

    def is_shared(self, ledger: int) -> bool:
        """Whether one commit named a ledger for several partitions on purpose."""
        return any(call.ledgers.count(ledger) > 1 for _, call in self._calls)

    def row(self, number: int) -> str | None:
        """What ever was at a row number, the first time."""
        return self._rows.get(number)

    def _moved(self, index: int, event: HeadMoved, seen: set[tuple[int, int]]) -> None:
        for part in event.parts:
            if (part.ledger, part.first_row) in seen:
                continue
            seen.add((part.ledger, part.first_row))
            is_outside = part.ledger in self.outside
            maker = NOBODY if is_outside else self.makers.get(part.ledger, NOBODY)
            rows = self.content.get(part.ledger, ())[: part.rows]
            for number, row in enumerate(rows, part.first_row):
                self._rows.setdefault(number, row)
            self.added.append(
                Added(
                    index,
                    event.by,
                    part,
                    rows,
                    maker.job,
                    maker.epoch,
                    event.committed,
                    event.was,
                )
            )
