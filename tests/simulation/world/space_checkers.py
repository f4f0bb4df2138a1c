"""Checkers of full disks and read-only bookies: S8-S11 of what is written, I25 and I26 of its writers.

What a bookie should take is computed from what it saw of its disk when it looked last, by the checkers'
own arithmetic. The product may be stricter, for it counts what it has promised; never more generous.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from bookie_server.wire.messages import Status
from spark_bookkeeper.ledger.protocol.replication import HELD_MARK
from tests.simulation.world import history as h
from tests.simulation.world import space_history as s
from tests.simulation.world.process import Band
from tests.simulation.world.story import NEVER, Story

_RECENT_US = 6_000_000
"""The longest that a client's operation takes from its choice of bookies to its commit."""


@dataclass(slots=True)
class _Process:
    """What one process of a bookie may take, as far as it can know."""

    is_sealed: bool = False
    readonly_since: int | None = None
    """Since which event its disk takes no new entries; by hysteresis until there is plenty again."""
    full_since: int | None = None
    by_hand_since: int | None = None
    arrived: dict[tuple[int, int], list[h.AddArrived]] = field(default_factory=dict)

    def on_look(self, event: s.Looked) -> None:
        """What is free has come into another band."""
        self.readonly_since = _since(
            self.readonly_since, event, event.band < Band.MARGIN, event.band < Band.PLENTY
        )
        self.full_since = _since(
            self.full_since, event, event.band < Band.RECOVERY, event.band < Band.MARGIN
        )

    def offence(self, event: h.Durable) -> str:
        """Why this entry should have been refused; empty where it need not."""
        arrived = self.arrived.get((event.ledger, event.entry), [])
        if not arrived:
            return ""
        first = arrived[0].index
        if self.is_sealed:
            return "by a sealed bookie"
        if self.full_since is not None and self.full_since < first:
            return "from the reserve for fences"
        if any(each.is_recovery for each in arrived):
            return ""
        if self.readonly_since is not None and self.readonly_since < first:
            return "from the reserve for recoveries"
        is_by_hand = self.by_hand_since is not None and self.by_hand_since < first
        return "though made read-only by hand" if is_by_hand else ""


def _since(since: int | None, event: h.Event, is_below: bool, stays: bool) -> int | None:
    if is_below:
        return since if since is not None else event.index
    return since if stays else None


def _processes(story: Story) -> Iterator[tuple[h.Event, dict[str, _Process]]]:
    """Every event, with what the processes may take by then."""
    processes: dict[str, _Process] = {}
    for event in story.history.events:
        match event:
            case h.BookieDown() | s.Unsealed():
                processes.pop(event.bookie, None)
            case s.Sealed():
                processes[event.bookie] = _Process(is_sealed=True)
            case s.Looked():
                processes.setdefault(event.bookie, _Process()).on_look(event)
            case s.WishHeard():
                process = processes.setdefault(event.bookie, _Process())
                process.by_hand_since = event.index if event.is_readonly else None
            case h.AddArrived():
                process = processes.setdefault(event.bookie, _Process())
                for entry in range(event.first, event.last + 1):
                    process.arrived.setdefault((event.ledger, entry), []).append(event)
            case _:
                pass
        yield event, processes


def s8_reserves_are_kept(story: Story) -> Iterator[str]:
    """No part of the reserve is written into by what it is not kept for; by hand means by hand."""
    for event, processes in _processes(story):
        if isinstance(event, h.Durable) and event.bookie in processes:
            offence = processes[event.bookie].offence(event)
            if offence:
                yield f"{event} was stored {offence}"


def s9_fences_are_taken(story: Story) -> Iterator[str]:
    """A bookie that has room for a fence, and has started on its disk, refuses none."""
    lowest: dict[str, int] = {}
    for event, processes in _processes(story):
        match event:
            case s.Looked():
                lowest[event.bookie] = min(event.band, lowest.get(event.bookie, event.band))
            case h.BookieDown() | s.Unsealed():
                lowest.pop(event.bookie, None)
            case h.LacReplied(status=Status.READ_ONLY):
                # One that was exhausted takes fences again when all of their part is free.
                has_room = lowest.get(event.bookie, Band.NOTHING) > Band.FEW_FENCES
                if event.is_fencing and has_room and not processes[event.bookie].is_sealed:
                    yield f"{event}, and its disk had room for many"
            case _:
                pass


def s10_full_disk_ends_nobody(story: Story) -> Iterator[str]:
    """What a bookie keeps free is enough for all that it takes."""
    for event in story.history.of(s.EndedWithoutRoom):
        yield f"{event}"


def s11_sealed_writes_nothing(story: Story) -> Iterator[str]:
    """A start on a full disk leaves it as it is, whatever is asked of it."""
    for event in story.history.of(s.SealedWrote):
        yield f"{event}"


def i25_read_only_is_not_chosen(story: Story) -> Iterator[str]:
    """Whoever takes a place in an ensemble was registered as writable, or is held a place for."""
    listed: dict[str, list[s.Listed]] = {}
    begun: dict[tuple[str, int], int] = {}
    former: dict[int, frozenset[str]] = {}
    for event in story.history.events:
        match event:
            case s.Listed():
                listed.setdefault(event.client, []).append(event)
            case h.RecoveryBegun():
                begun[event.client, event.ledger] = event.at_us
            case h.Committed():
                members = frozenset(b for f in event.metadata.fragments for b in f.ensemble)
                fresh = members - former.get(event.ledger, frozenset())
                former[event.ledger] = members
                since_us = event.at_us - _RECENT_US
                since_us = min(since_us, begun.get((event.client, event.ledger), since_us))
                known = listed.get(event.client, [])
                # A client may stand still for long between a look and what it decided by it.
                recent = [each for each in known if each.at_us >= since_us] or known[-1:]
                missed = fresh.difference(*(each.bookies for each in recent))
                missed -= set(_held(event, recent))
                if missed:
                    yield f"{event} takes {sorted(missed)}, not among {recent}"
            case _:
                pass


def _held(event: h.Committed, recent: list[s.Listed]) -> list[str]:
    """Members whose places may be held: the writable ones were fewer than a write set."""
    metadata = event.metadata
    if event.version or not any(len(each.bookies) < metadata.write_quorum for each in recent):
        return []
    return metadata.custom_metadata.get(HELD_MARK, b"").decode().split(",")


def i26_full_ends_no_writer(story: Story) -> Iterator[str]:
    """A writer loses its ledger to a recovery or a deletion only; and while nothing but disks gives in, and enough of them
    never do, it does not run out of bookies.
    """
    is_gentle = bool(story.history.of(s.Gentle))
    for event in story.history.of(h.WriterEnded):
        match event.error:
            case "LedgerFencedError" | "LedgerClosedError":
                is_taken_over = story.in_recovery(event.ledger, event.index) is not None
                end = story.end(event.ledger)
                is_over = end is not None and end.index < event.index
                if not is_taken_over and not is_over and event.ledger not in story.deleted:
                    yield f"{event}, and nobody has begun to recover it"
            case "LedgerDeletedError":
                if story.deleted.get(event.ledger, NEVER) > event.index:
                    yield f"{event}, and nobody has deleted it"
            case "AddQuorumTimeoutError":
                pass  # a bookie that ends to start on its full disk may answer too late
            case _:
                if is_gentle:
                    yield f"{event}"


SPACE_CHECKERS: tuple[Callable[[Story], Iterator[str]], ...] = (
    s8_reserves_are_kept,
    s9_fences_are_taken,
    s10_full_disk_ends_nobody,
    s11_sealed_writes_nothing,
    i25_read_only_is_not_chosen,
    i26_full_ends_no_writer,
)
