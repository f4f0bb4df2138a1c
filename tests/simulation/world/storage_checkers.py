"""Checkers of what bookies store and deny, and on whose directories: I12 and S1, S2, S4-S7.

S3, the order of compaction, has nothing to check in these layers. Media damage may lose entries; it
never excuses a denial (I12) nor wrong bytes (S5), and what it lost must be in limbo (S2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from bookie_server.wire.messages import Status
from tests.simulation.world import collection_history as c
from tests.simulation.world import history as h
from tests.simulation.world.story import DENIALS, Story


def i12_no_false_negative(story: Story) -> Iterator[str]:
    """A bookie never denies what it once synced, in whatever incarnation.

    What becomes durable while a request is served may be denied still; but a fencing request must
    see everything that came before the fence.
    """
    for event in story.history.events:
        if not isinstance(event, h.ReadReplied | h.LacReplied) or not _denies(event):
            continue
        if _is_lawfully_forgotten(story, event.bookie, event.ledger, event.index):
            continue
        held = _owed(story, event)
        if isinstance(event, h.LacReplied):
            if held:
                yield f"{event} denies a ledger of which it holds {sorted(held)}"
            continue
        for first, last, status in event.missing:
            for entry, since in held.items() if status in DENIALS else ():
                is_wanted = event.stripe is None or event.stripe.wants(entry)
                if first <= entry <= last and is_wanted:
                    yield f"{event} denies entry {entry}, durable since event {since}"


def _denies(event: h.ReadReplied | h.LacReplied) -> bool:
    if isinstance(event, h.LacReplied):
        return event.status in DENIALS
    return any(status in DENIALS for _, _, status in event.missing)


def _owed(story: Story, event: h.ReadReplied | h.LacReplied) -> dict[int, int]:
    """The entries that the bookie had to know of when it answered, and since which event each is durable."""
    held = story.durable(event.bookie, event.ledger, event.index)
    valid_from = _valid_from(story, event)
    return {
        entry: since
        for entry, since in held.items()
        if since < valid_from
        and not _is_unwanted(story, event.bookie, event.ledger, entry, event.index)
    }


def _valid_from(story: Story, event: h.ReadReplied | h.LacReplied) -> int:
    """The earliest moment whose state an answer may show."""
    fence = story.fenced.get((event.bookie, event.ledger), event.index)
    return max(event.since, min(fence, event.index)) if event.is_fencing else event.since


def s1_durable_before_ack(story: Story) -> Iterator[str]:
    """An add is answered OK only behind the sync that covered it."""
    for event in story.history.of(h.AddReplied):
        if event.status is not Status.OK:
            continue
        for entry in (event.first, event.last):
            if not story.is_durable(event.bookie, event.ledger, entry, event.index):
                yield f"{event} before entry {entry} was durable"


def s2_nothing_durable_is_lost(story: Story) -> Iterator[str]:
    """A restart finds every synced entry and fence: marks never pass what is not flushed."""
    for event in story.history.of(h.BookieUp):
        held = {ledger: set(entries) for ledger, entries in event.held}
        for bookie, ledger in story.holders():
            if bookie != event.bookie:
                continue
            entries = story.durable(bookie, ledger, event.index)
            lost = [e for e, since in entries.items() if since < event.index]
            lost = [e for e in lost if e not in held.get(ledger, set())]
            lost = [
                e for e in lost if not _is_unwanted(story, event.bookie, ledger, e, event.index)
            ]
            if lost and not _is_excused(story, event, ledger):
                yield f"{event} lost entries {lost} of ledger {ledger}"
        for (bookie, ledger), since in story.fenced.items():
            is_lost = bookie == event.bookie and since < event.index and ledger not in event.fenced
            if is_lost and not _is_excused(story, event, ledger):
                yield f"{event} lost the fence of ledger {ledger}"


def _is_excused(story: Story, event: h.BookieUp, ledger: int) -> bool:
    """Damaged media may lose a ledger that is in limbo, or lawfully forgotten; a deleted one goes."""
    is_damaged = story.damaged.get(event.bookie, event.index) < event.index
    is_in_limbo = is_damaged and ledger in event.limbo
    if story.is_deleting(event.bookie, ledger, event.index):
        return True
    return is_in_limbo or _is_lawfully_forgotten(story, event.bookie, ledger, event.index)


def _is_lawfully_forgotten(story: Story, bookie: str, ledger: int, at: int) -> bool:
    """Damaged media may lose a ledger that nobody asks this bookie about: a deleted one, one of
    which it was replaced, one that a recovery only begins to write back to it.
    """
    is_damaged = story.damaged.get(bookie, at) < at
    metadata = story.metadata(ledger, at)
    return is_damaged and not (
        metadata is not None and any(bookie in fragment.ensemble for fragment in metadata.fragments)
    )


def _is_unwanted(story: Story, bookie: str, ledger: int, entry: int, at: int) -> bool:
    """Damaged media may lose an entry of a closed ledger that nobody asks this bookie for any more, and
    limbo ends without it.
    """
    metadata = story.metadata(ledger, at)
    is_over = metadata is None or metadata.is_closed
    is_damaged = story.damaged.get(bookie, at) < at
    return is_damaged and is_over and not story.is_assigned(bookie, ledger, entry, at)


def s4_replay_idempotent(story: Story) -> Iterator[str]:
    """Starting again with nothing written between finds the same."""
    last: dict[str, h.BookieUp] = {}

    def entries(event: h.BookieUp) -> dict[int, tuple[int, ...]]:
        return {ledger: ids for ledger, ids in event.held if ids}

    for event in story.history.events:
        if isinstance(event, h.Durable | h.FenceDurable | c.Deleting | c.Dropping):
            last.pop(event.bookie, None)
        elif isinstance(event, h.BookieUp):
            before = last.get(event.bookie)
            is_damaged = story.damaged.get(event.bookie, event.index) < event.index
            if before is not None and not is_damaged and entries(before) != entries(event):
                yield f"{event} differs from {before}"
            last[event.bookie] = event


def s5_no_corrupt_serve(story: Story) -> Iterator[str]:
    """A bookie returns the bytes it was given."""
    for event in story.history.of(h.ReadReplied):
        for entry, crc in event.found:
            if crc != story.crcs.get((event.ledger, entry)):
                yield f"{event} returns another record for entry {entry}"


def s6_wrong_disks_never_serve(story: Story) -> Iterator[str]:
    """On directories that are empty, old, swapped or taken over nobody serves before an operator acts."""
    wrong: dict[str, h.Event] = {}
    superseded: dict[str, int] = {}
    for event in story.history.events:
        match event:
            case h.DisksHarmed():
                wrong[event.bookie] = event
            case h.Superseded():
                wrong[event.bookie] = event
                # Whoever was about to serve then has to end (S7); only the next one is refused.
                superseded[event.bookie] = event.incarnation
            case h.DisksSettled():
                wrong.pop(event.bookie, None)
            case h.BookieUp() if event.bookie in wrong:
                if event.incarnation > superseded.get(event.bookie, 0):
                    yield f"{event} after {wrong[event.bookie]}"
            case _:
                pass


def s7_one_process_per_id(story: Story) -> Iterator[str]:
    """Of two processes under one id the earlier ends, and one on directories it may not have is refused."""
    ended = {(e.bookie, e.incarnation): e.index for e in story.history.of(h.BookieDown)}
    for event in story.history.of(h.Superseded):
        if not event.is_lawful:
            yield f"{event}: on the same directories, or on empty ones without a word of the operator"
        elif ended.get((event.bookie, event.incarnation), -1) < 0:
            yield f"{event}, and it never ended"


STORAGE_CHECKERS: tuple[Callable[[Story], Iterator[str]], ...] = (
    i12_no_false_negative,
    s1_durable_before_ack,
    s2_nothing_durable_is_lost,
    s4_replay_idempotent,
    s5_no_corrupt_serve,
    s6_wrong_disks_never_serve,
    s7_one_process_per_id,
)
