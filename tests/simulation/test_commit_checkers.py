"""Each checker of the commit world rejects a history that breaks its promise; none a sound one.

A checker that cannot fail proves nothing: every one has its negative controls here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest

from tests.simulation.commits import checkers
from tests.simulation.commits.checkers import CHECKERS, Checker, label_of, violations_of
from tests.simulation.commits.history import (
    Actor,
    Announced,
    BatchDone,
    ChunkGone,
    CommitCalled,
    CommitEnded,
    CommitSent,
    DeadRead,
    Escaped,
    Event,
    Fenced,
    HeadMoved,
    History,
    JobBegun,
    LedgerClosed,
    LedgerGone,
    LedgerMade,
    Left,
    Part,
    Planned,
    Read,
    ReadRefused,
    Stuck,
    Swept,
    TokenEnded,
    Unnamed,
)
from tests.simulation.commits.story import Story

DRIVER = Actor("driver q.0", "driver", "q/0", 0)
TASK = Actor("task q.0 p0 a1", "task", "q/0", 0, 0, 1)
RETRY = Actor("task q.0 p0 a2", "task", "q/0", 0, 0, 2)
COMMIT = Actor("commit q.0", "commit", "q/0", 0)
OTHER = Actor("task q.0#2 p0 a1", "task", "q/0", 3, 0, 1)
LATER = Actor("commit q.0#2", "commit", "q/0", 3)
GC = Actor("gc 0", "gc")
READER = Actor("reader 0", "reader")
ROWS = ("a", "b")


def moved(
    version: int, *parts: Part, base: int = 0, epoch: int = 0, by: Actor = COMMIT
) -> HeadMoved:
    """A commit, as it should be."""
    next_row = parts[-1].first_row + parts[-1].rows if parts else base
    return HeadMoved(by, version, base, next_row, parts, -1, epoch, "LIVE")


FIRST = Part(7, 0, 2)
WRITTEN: list[Event] = [
    JobBegun("q/0", ROWS),
    Planned(DRIVER, 0, 0, False),
    Announced(TASK, 0, ()),
    LedgerMade(TASK, 7, 0, "LIVE"),
    LedgerClosed(TASK, 7, ROWS),
]
CALLED = CommitCalled(COMMIT, 0, "q/0", (7,), True)
TOLD = CommitEnded(COMMIT, 0, "q/0", "COMMITTED")
COMMITTED: list[Event] = [
    *WRITTEN,
    CALLED,
    CommitSent(COMMIT, 0),
    TokenEnded(COMMIT, 0, "LIVE", "COMMITTED", False),
    moved(1, FIRST),
    TOLD,
]
AGAIN: list[Event] = [
    Planned(replace(DRIVER, name="driver q.0#2", epoch=3), 3, 1, False),
    LedgerMade(OTHER, 8, 3, "LIVE"),
    LedgerClosed(OTHER, 8, ROWS),
    CommitCalled(LATER, 3, "q/0", (8,), True),
]
SOUND: list[Event] = [
    *COMMITTED,
    BatchDone("q/0"),
    Swept(COMMIT, ()),
    Read(READER, 0, 2, ROWS),
    *AGAIN,
    CommitEnded(LATER, 3, "q/0", "REPLAYED"),
    TokenEnded(LATER, 3, "LIVE", "DEAD", True),
    LedgerGone(LATER, 8, "DEAD", False, False),
    ReadRefused(READER, 0, 9, False),
]


@dataclass(frozen=True)
class Control:
    """A history that one checker must reject."""

    checker: Checker
    events: Sequence[Event] = field(repr=False)
    what: str

    def __str__(self) -> str:
        return f"{self.checker.__name__}-{self.what}"


SECOND = Part(8, 2, 2)
CONTROLS = (
    Control(checkers.x1_each_write_once, [*WRITTEN, BatchDone("q/0")], "never"),
    Control(
        checkers.x1_each_write_once,
        [*COMMITTED, *AGAIN, moved(2, FIRST, SECOND, epoch=3, by=LATER)],
        "two epochs",
    ),
    Control(
        checkers.x1_each_write_once, [*COMMITTED, moved(2, FIRST, Part(7, 2, 2))], "a ledger twice"
    ),
    Control(checkers.x2_rows_are_the_sources, [*WRITTEN, moved(1, Part(7, 0, 1))], "a row less"),
    Control(
        checkers.x2_rows_are_the_sources,
        [
            *WRITTEN[:-1],
            LedgerClosed(TASK, 7, ("a",)),
            LedgerMade(RETRY, 8, 0, "LIVE"),
            LedgerClosed(RETRY, 8, ("b",)),
            moved(1, Part(7, 0, 1)),
            moved(2, Part(7, 0, 1), Part(8, 1, 1)),
        ],
        "in two steps",
    ),
    Control(checkers.x3_only_what_was_committed, [*WRITTEN, moved(1, FIRST)], "no commit"),
    Control(
        checkers.x3_only_what_was_committed,
        [*WRITTEN, replace(CALLED, is_whole=False), moved(1, FIRST)],
        "a message missing",
    ),
    Control(
        checkers.x3_only_what_was_committed,
        [*WRITTEN, CALLED, replace(moved(1, FIRST), was="DEAD")],
        "an aborted one",
    ),
    Control(
        checkers.x3_only_what_was_committed,
        [*WRITTEN, CALLED, moved(1, FIRST, epoch=4)],
        "under another token",
    ),
    Control(
        checkers.x4_same_range_same_rows,
        [Read(READER, 0, 2, ROWS), Read(READER, 1, 3, ("c", "d"))],
        "another row",
    ),
    Control(checkers.x5_nothing_left, [Left("ledgers", ("8",))], "a ledger"),
    Control(checkers.x6_no_holes, [*COMMITTED, moved(2, FIRST, Part(8, 3, 2))], "a hole"),
    Control(checkers.x6_no_holes, [replace(moved(1, FIRST), next_row=3)], "too few ranges"),
    Control(checkers.x6_no_holes, [moved(2, FIRST), moved(3)], "back"),
    Control(
        checkers.x6_no_holes, [replace(moved(1, FIRST), missing=("0-0",))], "a chunk is missing"
    ),
    Control(checkers.x6_no_holes, [*COMMITTED, Read(READER, 0, 2, ("a",))], "a row not read"),
    Control(checkers.x6_no_holes, [ReadRefused(READER, 0, 2, True)], "a row denied"),
    Control(checkers.x7_nothing_needed_is_deleted, [LedgerGone(GC, 7, "", True, False)], "visible"),
    Control(checkers.x7_nothing_needed_is_deleted, [LedgerGone(GC, 7, "", False, True)], "kept"),
    Control(checkers.x7_nothing_needed_is_deleted, [ChunkGone(GC, "0-0", "", True)], "chunk"),
    Control(
        checkers.x7_nothing_needed_is_deleted, [moved(1, replace(FIRST, exists=False))], "before"
    ),
    Control(checkers.x8_drivers_are_told_the_truth, [*WRITTEN, CALLED, TOLD], "committed"),
    Control(
        checkers.x8_drivers_are_told_the_truth,
        [*WRITTEN, CALLED, replace(TOLD, outcome="REPLAYED")],
        "replayed",
    ),
    Control(
        checkers.x8_drivers_are_told_the_truth,
        [*COMMITTED, replace(TOLD, outcome="LogConflictError", is_definite=True)],
        "surely not",
    ),
    Control(
        checkers.x8_drivers_are_told_the_truth,
        [*WRITTEN, CALLED, replace(TOLD, outcome="CommitUnknownError", token="COMMITTED")],
        "unknown",
    ),
    Control(
        checkers.x8_drivers_are_told_the_truth,
        [
            *WRITTEN,
            replace(CALLED, is_stored=True),
            replace(TOLD, outcome="TxnRegressedError", is_stored=True),
        ],
        "regressed",
    ),
    Control(
        checkers.x9_schemas_grow_together,
        [replace(moved(1), columns=("x", "y")), replace(moved(2), columns=("x",))],
        "a column lost",
    ),
    Control(checkers.x9_schemas_grow_together, [replace(moved(1), columns=None)], "none"),
    Control(
        checkers.x9_schemas_grow_together,
        [moved(1, replace(FIRST, columns=("x",)))],
        "a range has more",
    ),
    Control(
        checkers.x9_schemas_grow_together,
        [JobBegun("q/0", ROWS, "x"), *WRITTEN[1:], moved(1, FIRST)],
        "a write's own column is missing",
    ),
    Control(checkers.l1_everything_ends, [Stuck("q0")], "stuck"),
    Control(checkers.p_no_error_escapes, [Escaped("KeyError()")], "escaped"),
    Control(
        checkers.r1_no_ledger_under_an_ended_token, [LedgerMade(TASK, 7, 0, "DEAD")], "a dead one"
    ),
    Control(checkers.r1_no_ledger_under_an_ended_token, [LedgerMade(TASK, 7, -1, "")], "none"),
    Control(
        checkers.r2_nothing_deleted_under_a_live_token,
        [LedgerGone(GC, 7, "LIVE", False, False)],
        "ledger",
    ),
    Control(
        checkers.r2_nothing_deleted_under_a_live_token,
        [ChunkGone(GC, "0-0", "LIVE", False)],
        "chunk",
    ),
    Control(
        checkers.r3_no_healthy_attempt_is_fenced,
        [LedgerMade(TASK, 7, 0, "LIVE"), Fenced(RETRY, 7, "LIVE")],
        "by one that has not finished",
    ),
    Control(
        checkers.r3_no_healthy_attempt_is_fenced,
        [
            LedgerMade(RETRY, 8, 0, "LIVE"),
            LedgerClosed(TASK, 7, ROWS),
            Fenced(TASK, 8, "LIVE"),
        ],
        "by an earlier one",
    ),
    Control(
        checkers.r3_no_healthy_attempt_is_fenced,
        [LedgerMade(TASK, 7, 0, "LIVE"), Fenced(OTHER, 7, "LIVE")],
        "by another epoch",
    ),
    Control(
        checkers.r4_tokens_are_ended_by_who_may,
        [Planned(DRIVER, 0, 0, False), TokenEnded(GC, 0, "LIVE", "DEAD", False)],
        "collected early",
    ),
    Control(
        checkers.r4_tokens_are_ended_by_who_may,
        [TokenEnded(Actor("abort x", "abort", "q/0", 5), 0, "LIVE", "DEAD", True)],
        "another's abort",
    ),
    Control(
        checkers.r4_tokens_are_ended_by_who_may,
        [TokenEnded(GC, 0, "COMMITTED", "DEAD", True)],
        "after its end",
    ),
    Control(
        checkers.r4_tokens_are_ended_by_who_may,
        [TokenEnded(LATER, 0, "LIVE", "COMMITTED", False)],
        "committed by another",
    ),
    Control(checkers.r5_everything_is_named, [Unnamed(GC, 7)], "forgotten"),
    Control(
        checkers.r6_a_superseded_claim_writes_nothing,
        [Announced(TASK, 0, (3,)), LedgerMade(TASK, 7, 0, "LIVE", (3,))],
        "beside a newer one",
    ),
    Control(
        checkers.r7_overwrites_drop_what_they_saw,
        [Planned(DRIVER, 0, 4, True), moved(6, FIRST)],
        "one commit missed",
    ),
    Control(
        checkers.r8_ranges_leave_by_the_front_or_all,
        [moved(1, FIRST, SECOND), moved(2, SECOND), moved(3, FIRST)],
        "a range lost",
    ),
    Control(
        checkers.r8_ranges_leave_by_the_front_or_all,
        [moved(1, FIRST), moved(2, Part(8, 0, 2))],
        "a range replaced",
    ),
    Control(checkers.r9_dead_is_dead, [DeadRead(COMMIT, 0), CommitSent(COMMIT, 0)], "sent on"),
    Control(
        checkers.r10_every_change_takes_its_token_along,
        [replace(moved(1, FIRST), committed=-1, was="")],
        "none",
    ),
    Control(
        checkers.r10_every_change_takes_its_token_along, [moved(1, FIRST, epoch=4)], "another's"
    ),
    Control(checkers.r11_sweeps_end_the_other_epochs, [Swept(COMMIT, (3,))], "one left"),
)


def story_of(events: Sequence[Event]) -> Story:
    return Story(History(events=list(events), times_us=[0] * len(events)))


@pytest.mark.parametrize("control", CONTROLS, ids=str)
def test_checker_rejects_a_history_that_breaks_its_promise(control: Control) -> None:
    assert list(control.checker(story_of(control.events))) != []


@pytest.mark.parametrize("checker", CHECKERS, ids=lambda checker: str(checker.__name__))
def test_checker_accepts_a_sound_history(checker: Checker) -> None:
    assert list(checker(story_of(SOUND))) == []


def test_a_late_copy_of_an_announcement_is_no_new_claim() -> None:
    """The task looked for siblings before a newer plan's claim; its lost message comes after it."""
    events = [
        Announced(TASK, 0, ()),
        Announced(TASK, 0, (3,)),
        LedgerMade(TASK, 7, 0, "LIVE", (3,)),
    ]

    assert list(checkers.r6_a_superseded_claim_writes_nothing(story_of(events))) == []


def test_every_checker_has_a_negative_control() -> None:
    assert {control.checker for control in CONTROLS} == set(CHECKERS)


def test_a_finding_begins_with_its_promise() -> None:
    assert label_of(checkers.x1_each_write_once) == "X1"
    found = violations_of(History(events=[Stuck("q0")], times_us=[0]))
    assert found == ("L1: q0",)
