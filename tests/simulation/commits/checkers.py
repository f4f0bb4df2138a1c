"""Checkers of the commit protocol: X1-X6 and the rules beneath them, over what the observer saw.

Each yields a sentence for every way in which a history breaks it; its name is the promise's.
``tests/simulation/test_commit_checkers.py`` shows each of them a history it must reject. X1 to X10
are what a user would notice; the rules R1 to R12 are clauses whose breach luck often forgives.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from tests.simulation.commits.history import (
    Announced,
    ChunkGone,
    CommitEnded,
    CommitSent,
    DeadRead,
    Escaped,
    Fenced,
    HeadMoved,
    History,
    LedgerClosed,
    LedgerGone,
    LedgerMade,
    Left,
    Read,
    ReadRefused,
    Stuck,
    Swept,
    TokenEnded,
    Unnamed,
    Withdrawn,
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


def r1_no_ledger_under_an_ended_token(story: Story) -> Iterator[str]:
    """Ledgers are created under LIVE tokens only: once a token has ended, they are final."""
    for event in story.history.events:
        if isinstance(event, LedgerMade) and event.epoch >= 0 and event.token != "LIVE":
            yield f"{event.by} made ledger {event.ledger} under a token that is {event.token}"
        if isinstance(event, LedgerMade) and event.by.kind == "task" and event.epoch < 0:
            yield f"{event.by} made ledger {event.ledger} under no token"


def r2_nothing_deleted_under_a_live_token(story: Story) -> Iterator[str]:
    """Whoever cleans ends the token first, be it for a ledger or for a chunk."""
    for event in story.history.events:
        if isinstance(event, LedgerGone) and event.token == "LIVE":
            yield f"{event.by} deleted ledger {event.ledger} under a LIVE token"
        if isinstance(event, ChunkGone) and event.token == "LIVE":
            yield f"{event.by} deleted chunk {event.chunk} under a LIVE token"


def r3_no_healthy_attempt_is_fenced(story: Story) -> Iterator[str]:
    """Under a LIVE token only a later attempt of the same partition fences, its own ledger closed."""
    closed: set[str] = set()
    for event in story.history.events:
        if isinstance(event, LedgerClosed):
            closed.add(event.by.name)
        if isinstance(event, Fenced) and event.token == "LIVE":
            victim = story.makers.get(event.ledger)
            if victim is None:
                continue
            is_sibling = (event.by.kind, event.by.epoch) == ("task", victim.epoch)
            is_later = (
                event.by.partition == victim.partition
                and event.by.task_attempt_id > victim.task_attempt_id
            )
            if not (is_sibling and is_later and event.by.name in closed):
                yield f"{event.by} fenced ledger {event.ledger} of {victim}, which may be healthy"


def r4_tokens_are_ended_by_who_may(story: Story) -> Iterator[str]:
    """A LIVE token ends by its commit, a newer claim, its abort, its job's sweep, or when due."""
    for event in story.history.events:
        if not isinstance(event, TokenEnded):
            continue
        by, owner = event.by, story.owners.get(event.epoch)
        if event.before != "LIVE":
            if event.state != "gone":
                yield f"{by} made token {event.epoch} {event.state} after {event.before}"
            continue
        if event.state == "COMMITTED":
            if by.kind == "commit" and by.epoch != event.epoch:
                yield f"{by} committed epoch {event.epoch}"
            continue
        is_job = owner is not None and by.job == owner.job
        may = {
            "task": is_job and by.epoch > event.epoch,
            "commit": is_job,
            "abort": by.epoch == event.epoch,
            "gc": event.is_due or event.maker == by.name,
            "optimize": owner is not None and by.name == owner.name,
        }.get(by.kind, owner is None)
        if not may:
            yield f"{by} ended token {event.epoch} ({event.state or 'gone'}) and had no right to"


def r5_everything_is_named(story: Story) -> Iterator[str]:
    """Every ledger is under a token, in the log, or in its garbage, at every step."""
    for event in story.history.events:
        if isinstance(event, Unnamed):
            yield f"nothing names ledger {event.ledger} since {event.by} worked"


def r6_a_superseded_claim_writes_nothing(story: Story) -> Iterator[str]:
    """A claim that announces itself below a higher epoch of its job creates no ledger."""
    found: dict[str, tuple[int, ...]] = {}
    for event in story.history.events:
        match event:
            case Announced():
                # A task looks for siblings after its first announcement was made; the same message
                # once more, given up and applied late, is nothing it looks behind.
                found.setdefault(event.by.name, event.siblings)
            case Withdrawn():
                # It may have gone before the task looked; made again, it is another claim.
                for name, then in found.items():
                    found[name] = tuple(other for other in then if other != event.epoch)
            case LedgerMade():
                then = found.get(event.by.name, ())
                for other in event.siblings:
                    if other > event.epoch and other in then:
                        yield f"{event.by} made ledger {event.ledger} though {other} had claimed"
            case _:
                pass


def r7_overwrites_drop_what_they_saw(story: Story) -> Iterator[str]:
    """An overwrite replaces the very rows that its plan saw, or those that are left of them."""
    next_row = overwritten_row = 0
    for event in story.history.events:
        if not isinstance(event, HeadMoved):
            continue
        seen = story.overwrites.get(event.committed)
        if seen is not None and (seen.next_row, seen.overwritten_row) != (
            next_row,
            overwritten_row,
        ):
            yield (
                f"epoch {event.committed} saw rows {seen.overwritten_row}..{seen.next_row} and "
                f"overwrote rows {overwritten_row}..{next_row}"
            )
        next_row = event.next_row
        if event.is_overwrite:
            overwritten_row = event.base_row


def r8_ranges_leave_by_the_front_or_all(story: Story) -> Iterator[str]:
    """No change loses ranges: appends keep all, truncation drops the oldest, overwrites drop all."""
    before: tuple[tuple[int, int], ...] = ()
    ends = (0, 0)
    for event in story.history.events:
        if isinstance(event, HeadMoved):
            after = tuple((part.first_row, part.ledger) for part in event.parts)
            kept = tuple(part for part in before if part[0] >= event.base_row)
            if event.by.kind == "optimize":
                # Some make way for others that hold the same rows; x10 looks at those.
                if (event.base_row, event.next_row) != ends:
                    yield f"version {event.version} of the head has other ends than {ends}"
            elif not event.missing and after[: len(kept)] != kept:
                yield f"version {event.version} of the head lost ranges: {kept} became {after}"
            before, ends = after, (event.base_row, event.next_row)


def r9_dead_is_dead(story: Story) -> Iterator[str]:
    """A commit that read that its token is DEAD sends nothing any more."""
    dead: set[tuple[str, int]] = set()
    for event in story.history.events:
        if isinstance(event, DeadRead):
            dead.add((event.by.name, event.epoch))
        if isinstance(event, CommitSent) and (event.by.name, event.epoch) in dead:
            yield f"{event.by} read that its token is DEAD and went on"


def r10_every_change_takes_its_token_along(story: Story) -> Iterator[str]:
    """Each change of the head ends one token, from LIVE to COMMITTED: its own."""
    for event in story.history.events:
        if isinstance(event, HeadMoved):
            is_own = event.by.kind != "commit" or event.by.epoch == event.committed
            if event.committed < 0 or event.was != "LIVE" or not is_own:
                yield (
                    f"{event.by} moved the head to version {event.version} with token "
                    f"{event.committed}, which was {event.was or 'not touched'}"
                )


def r11_sweeps_end_the_other_epochs(story: Story) -> Iterator[str]:
    """After a commit's sweep no other epoch of its job is LIVE."""
    for event in story.history.events:
        if isinstance(event, Swept) and event.live:
            yield f"epochs {event.live} are LIVE after {event.by} swept their job"


def r12_retention_keeps_its_promises(story: Story) -> Iterator[str]:
    """Retention drops no row that a live consumer needs, and never the newest range."""
    base_row, next_row = 0, 0
    for event in story.history.events:
        if not isinstance(event, HeadMoved):
            continue
        if event.by.kind in ("retain", "gc"):
            if 0 <= event.held_row < event.base_row and event.base_row > base_row:
                yield (
                    f"{event.by} dropped rows {base_row}..{event.base_row}, and a live consumer "
                    f"needs those from {event.held_row} on"
                )
            if event.base_row == event.next_row != base_row:
                yield f"{event.by} dropped the newest range"
            if event.next_row != next_row:
                yield f"{event.by} changed the end of the log"
        base_row, next_row = event.base_row, event.next_row


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
    r1_no_ledger_under_an_ended_token,
    r2_nothing_deleted_under_a_live_token,
    r3_no_healthy_attempt_is_fenced,
    r4_tokens_are_ended_by_who_may,
    r5_everything_is_named,
    r6_a_superseded_claim_writes_nothing,
    r7_overwrites_drop_what_they_saw,
    r8_ranges_leave_by_the_front_or_all,
    r9_dead_is_dead,
    r10_every_change_takes_its_token_along,
    r11_sweeps_end_the_other_epochs,
    r12_retention_keeps_its_promises,
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
