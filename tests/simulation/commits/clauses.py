"""Checkers of the clauses beneath the promises, R1 to R12, whose breach luck often forgives.

As :mod:`tests.simulation.commits.checkers`, which runs them with its own.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.commits.history import (
    Announced,
    ChunkGone,
    CommitSent,
    DeadRead,
    Fenced,
    HeadMoved,
    LedgerClosed,
    LedgerGone,
    LedgerMade,
    Swept,
    TokenEnded,
    Unnamed,
    Withdrawn,
)
from tests.simulation.commits.story import Story


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
