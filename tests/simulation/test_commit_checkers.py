"""Each checker of the commit world rejects a history that breaks its promise; none a sound one.

A checker that cannot fail proves nothing: every one has its negative controls here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from spark_bookkeeper.log.format.epoch import SeenTable
from tests.simulation.commits import checkers, clauses
from tests.simulation.commits import history as h
from tests.simulation.commits.checkers import CHECKERS, Checker, label_of, violations_of
from tests.simulation.commits.story import Story

DRIVER = h.Actor("driver q.0", "driver", "q/0", 0)
TASK = h.Actor("task q.0 p0 a1", "task", "q/0", 0, 0, 1)
RETRY = h.Actor("task q.0 p0 a2", "task", "q/0", 0, 0, 2)
COMMIT = h.Actor("commit q.0", "commit", "q/0", 0)
OTHER = h.Actor("task q.0#2 p0 a1", "task", "q/0", 3, 0, 1)
LATER = h.Actor("commit q.0#2", "commit", "q/0", 3)
GC = h.Actor("gc 0", "gc")
READER = h.Actor("reader 0", "reader")
OPTIMIZE = h.Actor("optimize 0", "optimize")
REWRITE = h.Actor("rewrite 0 g0 a1", "rewrite", "", 3, 0, 1)
RETAIN = h.Actor("retain 0", "retain")
ROWS = ("a", "b")


def moved(
    version: int, *parts: h.Part, base: int = 0, epoch: int = 0, by: h.Actor = COMMIT
) -> h.HeadMoved:
    """A commit, as it should be."""
    next_row = parts[-1].first_row + parts[-1].rows if parts else base
    return h.HeadMoved(by, version, base, next_row, parts, -1, epoch, "LIVE")


FIRST = h.Part(7, 0, 2)
WRITTEN: list[h.Event] = [
    h.JobBegun("q/0", ROWS),
    h.Planned(DRIVER, 0),
    h.Announced(TASK, 0, ()),
    h.LedgerMade(TASK, 7, 0, "LIVE"),
    h.LedgerClosed(TASK, 7, ROWS),
]
CALLED = h.CommitCalled(COMMIT, 0, "q/0", (7,), True)
TOLD = h.CommitEnded(COMMIT, 0, "q/0", "COMMITTED")
COMMITTED: list[h.Event] = [
    *WRITTEN,
    CALLED,
    h.CommitSent(COMMIT, 0),
    h.TokenEnded(COMMIT, 0, "LIVE", "COMMITTED", False),
    moved(1, FIRST),
    TOLD,
]
AGAIN: list[h.Event] = [
    h.Planned(replace(DRIVER, name="driver q.0#2", epoch=3), 3),
    h.LedgerMade(OTHER, 8, 3, "LIVE"),
    h.LedgerClosed(OTHER, 8, ROWS),
    h.CommitCalled(LATER, 3, "q/0", (8,), True),
]
SOUND: list[h.Event] = [
    *COMMITTED,
    h.BatchDone("q/0"),
    h.Swept(COMMIT, ()),
    h.Read(READER, 0, 2, ROWS),
    *AGAIN,
    h.CommitEnded(LATER, 3, "q/0", "REPLAYED"),
    h.TokenEnded(LATER, 3, "LIVE", "DEAD", True),
    h.LedgerGone(LATER, 8, "DEAD", False, False),
    h.ReadRefused(READER, 0, 9, False),
]


SECOND = h.Part(8, 2, 2)
CONTROLS: dict[Checker, dict[str, list[h.Event]]] = {
    checkers.x1_each_write_once: {
        "never": [*WRITTEN, h.BatchDone("q/0")],
        "two epochs": [*COMMITTED, *AGAIN, moved(2, FIRST, SECOND, epoch=3, by=LATER)],
        "a ledger twice": [*COMMITTED, moved(2, FIRST, h.Part(7, 2, 2))],
    },
    checkers.x2_rows_are_the_sources: {
        "a row less": [*WRITTEN, moved(1, h.Part(7, 0, 1))],
        "in two steps": [
            *WRITTEN[:-1],
            h.LedgerClosed(TASK, 7, ("a",)),
            h.LedgerMade(RETRY, 8, 0, "LIVE"),
            h.LedgerClosed(RETRY, 8, ("b",)),
            moved(1, h.Part(7, 0, 1)),
            moved(2, h.Part(7, 0, 1), h.Part(8, 1, 1)),
        ],
    },
    checkers.x3_only_what_was_committed: {
        "no commit": [*WRITTEN, moved(1, FIRST)],
        "a message missing": [*WRITTEN, replace(CALLED, is_whole=False), moved(1, FIRST)],
        "an aborted one": [*WRITTEN, CALLED, replace(moved(1, FIRST), was="DEAD")],
        "under another token": [*WRITTEN, CALLED, moved(1, FIRST, epoch=4)],
    },
    checkers.x4_same_range_same_rows: {
        "another row": [h.Read(READER, 0, 2, ROWS), h.Read(READER, 1, 3, ("c", "d"))]
    },
    checkers.x5_nothing_left: {"a ledger": [h.Left("ledgers", ("8",))]},
    checkers.x6_no_holes: {
        "a hole": [*COMMITTED, moved(2, FIRST, h.Part(8, 3, 2))],
        "too few ranges": [replace(moved(1, FIRST), next_row=3)],
        "back": [moved(2, FIRST), moved(3)],
        "a chunk is missing": [replace(moved(1, FIRST), missing=("0-0",))],
        "a row not read": [*COMMITTED, h.Read(READER, 0, 2, ("a",))],
        "a row denied": [h.ReadRefused(READER, 0, 2, True)],
    },
    checkers.x7_nothing_needed_is_deleted: {
        "visible": [h.LedgerGone(GC, 7, "", True, False)],
        "kept": [h.LedgerGone(GC, 7, "", False, True)],
        "chunk": [h.ChunkGone(GC, "0-0", "", True)],
        "before": [moved(1, replace(FIRST, exists=False))],
    },
    checkers.x8_drivers_are_told_the_truth: {
        "committed": [*WRITTEN, CALLED, TOLD],
        "replayed": [*WRITTEN, CALLED, replace(TOLD, outcome="REPLAYED")],
        "surely not": [*COMMITTED, replace(TOLD, outcome="LogConflictError", is_definite=True)],
        "unknown": [
            *WRITTEN,
            CALLED,
            replace(TOLD, outcome="CommitUnknownError", token="COMMITTED"),
        ],
        "regressed": [
            *WRITTEN,
            replace(CALLED, is_stored=True),
            replace(TOLD, outcome="TxnRegressedError", is_stored=True),
        ],
    },
    checkers.x9_schemas_grow_together: {
        "a column lost": [replace(moved(1), columns=("x", "y")), replace(moved(2), columns=("x",))],
        "none": [replace(moved(1), columns=None)],
        "a range has more": [moved(1, replace(FIRST, columns=("x",)))],
        "a write's own column is missing": [
            h.JobBegun("q/0", ROWS, "x"),
            *WRITTEN[1:],
            moved(1, FIRST),
        ],
    },
    checkers.l1_everything_ends: {"stuck": [h.Stuck("q0")]},
    checkers.p_no_error_escapes: {"escaped": [h.Escaped("KeyError()")]},
    clauses.r1_no_ledger_under_an_ended_token: {
        "a dead one": [h.LedgerMade(TASK, 7, 0, "DEAD")],
        "none": [h.LedgerMade(TASK, 7, -1, "")],
    },
    clauses.r2_nothing_deleted_under_a_live_token: {
        "ledger": [h.LedgerGone(GC, 7, "LIVE", False, False)],
        "chunk": [h.ChunkGone(GC, "0-0", "LIVE", False)],
    },
    clauses.r3_no_healthy_attempt_is_fenced: {
        "by one that has not finished": [
            h.LedgerMade(TASK, 7, 0, "LIVE"),
            h.Fenced(RETRY, 7, "LIVE"),
        ],
        "by an earlier one": [
            h.LedgerMade(RETRY, 8, 0, "LIVE"),
            h.LedgerClosed(TASK, 7, ROWS),
            h.Fenced(TASK, 8, "LIVE"),
        ],
        "by another epoch": [h.LedgerMade(TASK, 7, 0, "LIVE"), h.Fenced(OTHER, 7, "LIVE")],
    },
    clauses.r4_tokens_are_ended_by_who_may: {
        "collected early": [
            h.Planned(DRIVER, 0),
            h.TokenEnded(GC, 0, "LIVE", "DEAD", False),
        ],
        "another's abort": [
            h.TokenEnded(h.Actor("abort x", "abort", "q/0", 5), 0, "LIVE", "DEAD", True)
        ],
        "after its end": [h.TokenEnded(GC, 0, "COMMITTED", "DEAD", True)],
        "committed by another": [h.TokenEnded(LATER, 0, "LIVE", "COMMITTED", False)],
    },
    clauses.r5_everything_is_named: {"forgotten": [h.Unnamed(GC, 7)]},
    clauses.r6_a_superseded_claim_writes_nothing: {
        "beside a newer one": [h.Announced(TASK, 0, (3,)), h.LedgerMade(TASK, 7, 0, "LIVE", (3,))]
    },
    clauses.r7_overwrites_drop_what_they_saw: {
        "one commit missed": [h.Planned(DRIVER, 0, SeenTable(4, 0, 0)), moved(6, FIRST)]
    },
    clauses.r8_ranges_leave_by_the_front_or_all: {
        "a range lost": [moved(1, FIRST, SECOND), moved(2, SECOND), moved(3, FIRST)],
        "a range replaced": [moved(1, FIRST), moved(2, h.Part(8, 0, 2))],
        "rewritten shorter": [moved(1, FIRST, SECOND), moved(2, h.Part(9, 0, 2), by=OPTIMIZE)],
    },
    checkers.x10_rows_stay: {
        "another row": [
            *COMMITTED,
            h.LedgerMade(REWRITE, 9, 3, "LIVE"),
            h.LedgerClosed(REWRITE, 9, ("a", "c")),
            moved(2, h.Part(9, 0, 2), epoch=3, by=OPTIMIZE),
        ],
        "rows missing": [
            *COMMITTED,
            h.LedgerMade(REWRITE, 9, 3, "LIVE"),
            h.LedgerClosed(REWRITE, 9, ("a",)),
            moved(2, h.Part(9, 0, 2), epoch=3, by=OPTIMIZE),
        ],
        "another schema": [
            *COMMITTED,
            h.LedgerMade(REWRITE, 9, 3, "LIVE"),
            h.LedgerClosed(REWRITE, 9, ROWS),
            moved(2, h.Part(9, 0, 2, columns=("x",)), epoch=3, by=OPTIMIZE),
        ],
    },
    clauses.r12_retention_keeps_its_promises: {
        "a consumer's rows": [
            moved(1, FIRST, SECOND),
            replace(moved(2, SECOND, base=2, by=RETAIN), held_row=1),
        ],
        "the newest": [moved(1, FIRST), moved(2, base=2, by=RETAIN)],
        "the end": [moved(1, FIRST, SECOND), moved(2, FIRST, by=RETAIN)],
    },
    clauses.r9_dead_is_dead: {"sent on": [h.DeadRead(COMMIT, 0), h.CommitSent(COMMIT, 0)]},
    clauses.r10_every_change_takes_its_token_along: {
        "none": [replace(moved(1, FIRST), committed=-1, was="")],
        "another's": [moved(1, FIRST, epoch=4)],
    },
    clauses.r11_sweeps_end_the_other_epochs: {"one left": [h.Swept(COMMIT, (3,))]},
}
"""What each of them must reject, by what is wrong with it."""


def story_of(events: Sequence[h.Event]) -> Story:
    return Story(h.History(events=list(events)))


@pytest.mark.parametrize(
    ("checker", "events"),
    [
        pytest.param(checker, events, id=f"{checker.__name__}-{what}")
        for checker, controls in CONTROLS.items()
        for what, events in controls.items()
    ],
)
def test_checker_rejects_a_history_that_breaks_its_promise(
    checker: Checker, events: list[h.Event]
) -> None:
    assert list(checker(story_of(events))) != []


@pytest.mark.parametrize("checker", CHECKERS, ids=lambda checker: str(checker.__name__))
def test_checker_accepts_a_sound_history(checker: Checker) -> None:
    assert list(checker(story_of(SOUND))) == []


def test_a_late_copy_of_an_announcement_is_no_new_claim() -> None:
    """The task looked for siblings before a newer plan's claim; its lost message comes after it."""
    events = [
        h.Announced(TASK, 0, ()),
        h.Announced(TASK, 0, (3,)),
        h.LedgerMade(TASK, 7, 0, "LIVE", (3,)),
    ]

    assert list(clauses.r6_a_superseded_claim_writes_nothing(story_of(events))) == []


def test_a_claim_that_went_and_came_again_was_not_there_when_the_task_looked() -> None:
    events = [
        h.Announced(TASK, 0, (3, 5)),
        h.Withdrawn(GC, 3),
        h.LedgerMade(TASK, 7, 0, "LIVE", (3,)),
    ]
    still_there = h.LedgerMade(TASK, 7, 0, "LIVE", (3, 5))

    assert list(clauses.r6_a_superseded_claim_writes_nothing(story_of(events))) == []
    events[-1] = still_there
    (found,) = clauses.r6_a_superseded_claim_writes_nothing(story_of(events))
    assert "5 had claimed" in found


def test_every_checker_has_a_negative_control() -> None:
    assert {checker for checker, controls in CONTROLS.items() if controls} == set(CHECKERS)


def test_a_finding_begins_with_its_promise() -> None:
    assert label_of(checkers.x1_each_write_once) == "X1"
    found = violations_of(h.History(events=[h.Stuck("q0")]))
    assert found == ("L1: q0",)
