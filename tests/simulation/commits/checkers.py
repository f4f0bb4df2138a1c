"""Checkers of the commit protocol: X1-X10, over what the observer saw.

Each yields a sentence for every way in which a history breaks it; its name is the promise's.
``tests/simulation/test_commit_checkers.py`` shows each of them a history it must reject. X1 to X10
are what a user would notice; the rules R1 to R12 are clauses whose breach luck often forgives.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from tests.simulation.commits import clauses
from tests.simulation.commits.history import (
    ChunkGone,
    CommitEnded,
    Escaped,
    HeadMoved,
    History,
    LedgerGone,
    Left,
    Read,
    ReadRefused,
    Stuck,
)
from tests.simulation.commits.story import Story

Checker = Callable[[Story], Iterator[str]]


def x1_each_write_once(story: Story) -> Iterator[str]:
    """What is done is visible once, and nothing twice, whoever wrote it again."""
    epochs: dict[str, list[int]] = {}
    for added in story.added:
        if added.job:
            found = epochs.setdefault(added.job, [])
            if added.epoch not in found:
                found.append(added.epoch)
    for job, found in epochs.items():
        if len(found) > 1:
            yield f"{job} became visible {len(found)} times, by epochs {found}"
    ledgers = Counter(added.ledger for added in story.added)
    for ledger, times in ledgers.items():
        if times > 1 and not story.is_shared(ledger):
            yield f"ledger {ledger} became visible {times} times"
    for job in story.done:
        if story.source[job] and job not in epochs:
            yield f"{job} is done and never became visible"


def x2_rows_are_the_sources(story: Story) -> Iterator[str]:
    """A write adds exactly its source's rows, as a multiset, all in one change of the head."""
    rows: dict[str, Counter[str]] = {}
    changes: dict[str, set[int]] = {}
    for added in story.added:
        if added.job:
            rows.setdefault(added.job, Counter()).update(added.rows)
            changes.setdefault(added.job, set()).add(added.index)
    for job, found in rows.items():
        times = len({added.epoch for added in story.added if added.job == job})
        wanted = Counter(story.source[job])
        if times == 1 and found != wanted:
            yield f"{job} added {sorted(found.elements())}, its source has {sorted(wanted)}"
        if times == 1 and len(changes[job]) > 1:
            yield f"{job} became visible in {len(changes[job])} steps"


def x3_only_what_was_committed(story: Story) -> Iterator[str]:
    """At every step, what is visible was named by a whole commit whose token went LIVE to COMMITTED."""
    for added in story.added:
        if added.by.kind in ("writer", "truncate", "end") or added.ledger in story.outside:
            if added.ledger not in story.outside:
                yield f"ledger {added.ledger} became visible by {added.by}"
            continue
        if added.was != "LIVE" or added.committed != added.epoch:
            yield (
                f"ledger {added.ledger} of epoch {added.epoch} became visible with token "
                f"{added.was or 'none'} and epoch {added.committed} committed"
            )
        if added.ledger not in story.offered(added.epoch, added.index):
            yield f"ledger {added.ledger} became visible and no whole commit named it"


def x4_same_range_same_rows(story: Story) -> Iterator[str]:
    """Rows ``a`` to ``b`` are the same rows for everybody and at every time they can be read."""
    rows: dict[int, str] = {}
    for event in story.history.events:
        if isinstance(event, Read):
            for number, row in enumerate(event.rows, event.from_row):
                if rows.setdefault(number, row) != row:
                    yield f"row {number} was {rows[number]!r}, and {row!r} for {event.by}"


def x5_nothing_left(story: Story) -> Iterator[str]:
    """When all is quiet and collected, nothing is there but what is visible."""
    for event in story.history.events:
        if isinstance(event, Left):
            yield f"{event.what} are left: {', '.join(event.names)}"


def x6_no_holes(story: Story) -> Iterator[str]:
    """Ranges follow each other, row numbers only grow, and readers get every row or an error."""
    next_row = base_row = 0
    for event in story.history.events:
        match event:
            case HeadMoved():
                row = event.base_row
                for part in event.parts:
                    if part.first_row != row:
                        yield f"row {part.first_row} follows row {row} in version {event.version}"
                    row = part.first_row + part.rows
                if row != event.next_row and not event.missing:
                    yield f"ranges end at {row}, the log at {event.next_row}"
                if event.next_row < next_row or event.base_row < base_row:
                    yield f"version {event.version} of the head goes back"
                next_row, base_row = event.next_row, event.base_row
                if event.missing:
                    yield f"version {event.version} needs chunks {event.missing}, which are gone"
            case Read():
                wanted = [story.row(number) for number in range(event.from_row, event.to_row)]
                if list(event.rows) != wanted:
                    yield (
                        f"{event.by} read {event.rows} for {event.from_row}..{event.to_row}, "
                        f"there was {wanted}"
                    )
            case ReadRefused(was_there=True):
                yield f"{event.by} was denied rows {event.from_row}..{event.to_row}"
            case _:
                pass


def x7_nothing_needed_is_deleted(story: Story) -> Iterator[str]:
    """Nothing visible, nothing in garbage that has not expired, and nothing that becomes visible."""
    for event in story.history.events:
        match event:
            case LedgerGone(is_visible=True):
                yield f"{event.by} deleted ledger {event.ledger}, which is visible"
            case LedgerGone(is_kept=True):
                yield f"{event.by} deleted ledger {event.ledger} before its garbage expired"
            case ChunkGone(is_referenced=True):
                yield f"{event.by} deleted chunk {event.chunk}, which is referenced"
            case HeadMoved():
                for part in event.parts:
                    if not part.exists:
                        yield f"ledger {part.ledger} is visible and does not exist"
            case _:
                pass


def x8_drivers_are_told_the_truth(story: Story) -> Iterator[str]:
    """Success means visible; an error that says "surely not" means that it never is."""
    for index, event in enumerate(story.history.events):
        if not isinstance(event, CommitEnded):
            continue
        mine = [added for added in story.added if added.job == event.job]
        if event.outcome == "COMMITTED":
            is_there = any(a.epoch == event.epoch and a.index < index for a in mine)
            if story.offered_rows(event.epoch) and not is_there:
                yield f"{event.by} was told COMMITTED, and nothing is visible"
        elif event.outcome == "REPLAYED":
            if story.source[event.job] and not any(added.index < index for added in mine):
                yield f"{event.by} was told REPLAYED, and nothing is visible"
        elif event.outcome == "CommitUnknownError" and event.token != "gone":
            yield f"{event.by} was told {event.outcome}, and its token is {event.token}"
        elif event.outcome == "TxnRegressedError" and event.is_stored:
            if story.was_stored(event.by, index):
                yield f"{event.by} was told {event.outcome}, and its batch was the last stored"
        elif event.is_definite and any(added.epoch == event.epoch for added in mine):
            yield f"{event.by} was told {event.outcome}, and its epoch is visible"


def x9_schemas_grow_together(story: Story) -> Iterator[str]:
    """Every range has its schema, the newest one has all columns of all, and never loses one."""
    before: set[str] = set()
    for event in story.history.events:
        if not isinstance(event, HeadMoved):
            continue
        newest = set(event.columns or ())
        if event.columns is None or not before <= newest:
            yield f"version {event.version} of the head lost columns {sorted(before - newest)}"
        for part in event.parts:
            maker = story.makers.get(part.ledger)
            wanted = {story.columns.get(maker.job, "") if maker is not None else ""} - {""}
            if part.columns is None or not wanted <= set(part.columns) <= newest:
                yield f"ledger {part.ledger} has columns {part.columns}, the log {sorted(newest)}"
        before = newest


def x10_rows_stay(story: Story) -> Iterator[str]:
    """What is at a row number, and its schema, never change, whichever ledger it lies in."""
    columns: dict[int, tuple[str, ...] | None] = {}
    for added in story.added:
        if len(added.rows) != added.part.rows:
            yield f"ledger {added.ledger} has {len(added.rows)} of {added.part.rows} rows"
        for number, row in enumerate(added.rows, added.first_row):
            if story.row(number) != row:
                yield f"row {number} was {story.row(number)!r}, and {row!r} in {added.ledger}"
            if columns.setdefault(number, added.part.columns) != added.part.columns:
                yield f"row {number} had {columns[number]}, and {added.part.columns} since"


def l1_everything_ends(story: Story) -> Iterator[str]:
    """In a healed world everybody comes to an end."""
    for event in story.history.events:
        if isinstance(event, Stuck):
            yield event.what


def p_no_error_escapes(story: Story) -> Iterator[str]:
    """What fails, fails as one of the product's errors; its invariants hold."""
    for event in story.history.events:
        if isinstance(event, Escaped):
            yield event.error


CHECKERS: tuple[Checker, ...] = (
    x1_each_write_once,
    x2_rows_are_the_sources,
    x3_only_what_was_committed,
    x4_same_range_same_rows,
    x5_nothing_left,
    x6_no_holes,
    x7_nothing_needed_is_deleted,
    x8_drivers_are_told_the_truth,
    x9_schemas_grow_together,
    x10_rows_stay,
    l1_everything_ends,
    p_no_error_escapes,
    clauses.r1_no_ledger_under_an_ended_token,
    clauses.r2_nothing_deleted_under_a_live_token,
    clauses.r3_no_healthy_attempt_is_fenced,
    clauses.r4_tokens_are_ended_by_who_may,
    clauses.r5_everything_is_named,
    clauses.r6_a_superseded_claim_writes_nothing,
    clauses.r7_overwrites_drop_what_they_saw,
    clauses.r8_ranges_leave_by_the_front_or_all,
    clauses.r9_dead_is_dead,
    clauses.r10_every_change_takes_its_token_along,
    clauses.r11_sweeps_end_the_other_epochs,
    clauses.r12_retention_keeps_its_promises,
)


def label_of(checker: Checker) -> str:
    """``X1``, ``R3``, ...: how a finding begins."""
    return checker.__name__.partition("_")[0].upper()


def violations_of(history: History) -> tuple[str, ...]:
    """Everything that is wrong with a history."""
    story = Story(history)
    return tuple(
        f"{label_of(checker)}: {found}" for checker in CHECKERS for found in checker(story)
    )
