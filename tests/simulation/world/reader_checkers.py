"""Checkers of what clients are told: I4, I5 and I7."""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.world import history as h
from tests.simulation.world.story import Story


def i4_one_last(story: Story) -> Iterator[str]:
    """Nobody is ever told two different ends of a ledger."""
    told: dict[int, dict[int, str]] = {}
    for ledger, versions in story.versions.items():
        for commit in versions:
            if commit.metadata.is_closed:
                told.setdefault(ledger, {})[commit.metadata.last_entry] = str(commit)
    for event in story.history.events:
        match event:
            case (
                h.WriterClosed(ledger=ledger, last=last)
                | h.Opened(ledger=ledger, is_closed=True, last=last)
                | h.LacSeen(ledger=ledger, is_closed=True, lac=last)
            ):
                told.setdefault(ledger, {})[last] = str(event)
            case _:
                pass
    for ledger, ends in told.items():
        if len(ends) > 1:
            yield f"ledger {ledger} has the ends {ends}"


def i5_order_and_content(story: Story) -> Iterator[str]:
    """What is read is what was written, in order, and within the ledger's end."""
    previous: dict[tuple[str, int], int] = {}
    for event in story.history.events:
        if isinstance(event, h.TailEnded) and event.is_closed:
            end = story.end(event.ledger)
            if end is None or event.last != end.metadata.last_entry:
                yield f"{event} although {end}"
        if not isinstance(event, h.ReadEntry | h.ReadUnconfirmed):
            continue
        ledger, entry = event.ledger, event.entry
        if story.sent.get((ledger, entry)) != event.payload:
            yield f"{event} was never written"
        if isinstance(event, h.ReadUnconfirmed):
            continue
        before = previous.get((event.client, ledger), -1)
        if entry not in (0, before + 1):
            yield f"{event} came after entry {before}"
        previous[event.client, ledger] = entry
        end = story.end(ledger)
        if end is not None and entry > end.metadata.last_entry:
            yield f"{event} is beyond {end}"


def i7_lac_sound(story: Story) -> Iterator[str]:
    """A reader's LAC is acknowledged or recovered, and never falls."""
    highest: dict[tuple[str, int], int] = {}
    for event in story.history.events:
        if isinstance(event, h.LacSeen):
            lac = event.lac
            if lac < highest.get((event.client, event.ledger), -1):
                yield f"{event} is less than it was told before"
            highest[event.client, event.ledger] = lac
        elif isinstance(event, h.Opened):
            lac = event.last
        else:
            continue
        if lac < story.acked_before(event.ledger, event.index):
            continue
        end = story.end(event.ledger)
        if not event.is_closed or end is None or lac > end.metadata.last_entry:
            yield f"{event} claims more than was acknowledged or recovered"


READER_CHECKERS = (i4_one_last, i5_order_and_content, i7_lac_sound)
