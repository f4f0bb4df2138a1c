"""Reach marks: the situations a simulation has to get into before its silence means anything.

Each mark is found in the history afterwards, so nothing in the run aims at being counted. A seed
counts once per mark; ``REACHABLE`` names all of them, and the long suite wants each many times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from bookie_server.wire.messages import Status
from bookkeeper_metadata.model import LedgerState
from tests.simulation.world import collection_history as c
from tests.simulation.world import history as h
from tests.simulation.world import space_history as s
from tests.simulation.world.healing_history import DamageMarked, LimboEnded
from tests.simulation.world.process import Band
from tests.simulation.world.story import NEVER, Story


def _of_metadata(story: Story) -> Iterator[str]:
    for before, commit in story.changes():
        after = commit.metadata
        has_changed = before.fragments != after.fragments
        if has_changed and after.state is LedgerState.OPEN:
            is_in_place = len(before.fragments) == len(after.fragments)
            yield "writer replaced a fragment" if is_in_place else "writer began a fragment"
        if before.state is LedgerState.IN_RECOVERY and after.is_closed:
            yield "recovery closed a ledger"
            if has_changed:
                yield "recovery replaced a bookie"
            if after.ensemble_size > after.write_quorum:
                yield "recovery closed a striped ledger"
            if after.last_entry < 0:
                yield "recovery closed an empty ledger"
    for ledger in story.versions:
        end = story.end(ledger)
        if end is not None:
            sent = sum(key[0] == ledger for key in story.sent)
            last = end.metadata.last_entry
            if last >= len(story.acked.get(ledger, [])):
                yield "unacknowledged entry kept"
            if last + 1 < sent:
                yield "unacknowledged entry cut off"
            if len(end.metadata.fragments) > 2:
                yield "ledger of three fragments closed"


def _of_recovery(story: Story) -> Iterator[str]:
    running: dict[int, list[h.RecoveryBegun]] = {}
    begun: dict[tuple[str, int], int] = {}
    for event in story.history.events:
        if isinstance(event, h.RecoveryBegun):
            others = running.setdefault(event.ledger, [])
            others.append(event)
            begun[event.client, event.ledger] = event.index
            if len(others) > 1:
                yield "recoveries met"
        elif isinstance(event, h.RecoveryEnded):
            others = running.get(event.ledger, [])
            running[event.ledger] = [each for each in others if each.client != event.client]
            if event.error == "LedgerRecoveryError":
                yield "recovery aborted on unknown"
            end, since = story.end(event.ledger), begun[event.client, event.ledger]
            if end is None or event.error or not since < end.index < event.index:
                continue
            if end.client != event.client:
                yield "recovery adopted another's end"
        elif isinstance(event, h.Appended) and running.get(event.ledger):
            yield "append during a recovery"
    for before, commit in story.changes():
        firsts = (index for (_, ledger), index in begun.items() if ledger == commit.ledger)
        is_change = before.fragments != commit.metadata.fragments
        is_open = commit.metadata.state is LedgerState.OPEN
        if is_change and is_open and min(firsts, default=NEVER) < commit.index:
            yield "ensemble change beside a recovery"


def _of_bookies(story: Story) -> Iterator[str]:
    arrived: set[tuple[str, int]] = set()
    stored: set[tuple[str, int, int]] = set()
    up: set[tuple[str, int]] = set()
    for event in story.history.events:
        match event:
            case h.AddArrived():
                arrived.add((event.bookie, event.ledger))
                if event.is_recovery:
                    yield "entry written back"
            case h.AddReplied(status=Status.FENCED):
                yield "late add refused by a fence"
            case h.AddReplied(status=Status.LIMBO):
                yield "add refused in limbo"
            case c.Buried():
                yield "ledger collected"
            case c.Dropping():
                yield "copy too many dropped"
            case c.LogsRewritten():
                yield "logs merged" if len(event.log_ids) > 1 else "log rewritten"
            case h.AddReplied(status=Status.OK):
                key = event.bookie, event.ledger, event.first
                if key in stored:
                    yield "duplicate add answered"
                stored.add(key)
            case h.FenceDurable() if (event.bookie, event.ledger) not in arrived:
                yield "unknown ledger fenced"
            case h.BookieUp():
                up.add((event.bookie, event.incarnation))
                if event.groups_torn:
                    yield "torn tail replayed"
                if event.groups_replayed:
                    yield "groups replayed"
                if event.limbo:
                    yield "ledger in limbo"
            case h.BookieDown() if (event.bookie, event.incarnation) not in up:
                yield "start interrupted"
            case h.ReadReplied():
                if any(status is Status.UNKNOWN for _, _, status in event.missing):
                    yield "bookie answered UNKNOWN"
            case _:
                pass


def _of_disks(story: Story) -> Iterator[str]:
    for event in story.history.events:
        match event:
            case h.StartRefused():
                yield "start refused"
            case h.DisksHarmed():
                yield f"directories {event.how}"
            case h.DisksSettled():
                yield f"refused disks {event.how}"
            case h.RivalRefused():
                yield "second process refused"
            case h.Superseded():
                yield "process superseded"
            case _:
                pass


def _of_space(story: Story) -> Iterator[str]:
    low: dict[str, int] = {}
    has_room_again: set[str] = set()
    for event in story.history.events:
        match event:
            case s.Looked():
                before = low.get(event.bookie, Band.PLENTY)
                if event.band < Band.MARGIN <= Band.PLENTY == before:
                    yield "bookie became read-only"
                if event.band is Band.PLENTY and before < Band.MARGIN:
                    has_room_again.add(event.bookie)
                low[event.bookie] = event.band
            case h.BookieDown():
                low.pop(event.bookie, None)
                has_room_again.discard(event.bookie)
            case h.AddReplied(status=Status.READ_ONLY):
                yield "recovery add refused" if event.is_recovery else "add refused, read-only"
            case h.AddReplied(status=Status.OK):
                if event.bookie in has_room_again and not event.is_recovery:
                    yield "bookie takes entries again"
                if low.get(event.bookie) == Band.RECOVERY and event.is_recovery:
                    yield "recovery add on the reserve"
            case h.FenceDurable() if low.get(event.bookie) in (Band.FEW_FENCES, Band.FENCES):
                yield "fence on the reserve"
            case h.LacReplied(status=Status.READ_ONLY):
                yield "fence refused, exhausted"
            case s.Sealed():
                yield "sealed start"
            case h.ReadReplied() if event.found and low.get(event.bookie) == Band.NOTHING:
                yield "read from a full bookie"
            case s.Unsealed():
                yield "sealed start over"
            case s.WishHeard(is_readonly=True):
                yield "read-only by hand"
            case s.NoRoomForCheckpoint():
                yield "checkpoint without room"
            case s.Gentle():
                yield "gentle run"
            case _:
                pass


def _of_held_places(story: Story) -> Iterator[str]:
    """A member of a new ledger that was down; ``back`` when it is sent entries all the same."""
    down: set[str] = set()
    held: dict[int, set[str]] = {}
    for event in story.history.events:
        match event:
            case h.BookieDown():
                down.add(event.bookie)
            case h.BookieUp():
                down.discard(event.bookie)
            case h.Committed(version=0):
                held[event.ledger] = down.intersection(event.metadata.last_fragment.ensemble)
                if held[event.ledger]:
                    yield "place held in a new ledger"
            case h.AddReplied(status=Status.OK) if event.bookie in held.get(event.ledger, ()):
                yield "held bookie back"
                if down:
                    yield "held bookie back, another one dead"
            case _:
                pass


def _of_clients(story: Story) -> Iterator[str]:
    for event in story.history.events:
        match event:
            case h.WriterEnded(error="LedgerFencedError"):
                yield "writer fenced"
            case h.WriterEnded(error="NotEnoughBookiesError"):
                yield "writer ran out of bookies"
            case h.WriterEnded(error="AddQuorumTimeoutError"):
                yield "add timed out"
            case h.Refused(operation="close", error="LedgerFencedError"):
                yield "close refused"
            case h.Refused(error="NoSuchLedgerError"):
                yield "ledger gone"
            case h.ReadUnconfirmed():
                yield "read beyond what is confirmed"
            case h.TailEnded(is_closed=True) if event.last >= 0:
                yield "ledger tailed to its end"
            case h.LacSeen(is_closed=False) if event.lac >= 0:
                yield "open ledger followed"
            case _:
                pass


def _of_healing(story: Story) -> Iterator[str]:
    for before, commit in story.changes():
        if story.replacements(before, commit):
            yield "share taken over"
            if not before.is_closed:
                yield "share of an open ledger taken over"
    for event in story.history.events:
        match event:
            case LimboEnded():
                yield "limbo ended"
            case DamageMarked(is_limbo=False):
                yield "damage marked"
            case DamageMarked():
                yield "limbo marked"
            case _:
                pass


REACHABLE = (
    "writer replaced a fragment", "writer began a fragment", "recovery closed a ledger",
    "recovery replaced a bookie", "recovery closed a striped ledger",
    "recovery closed an empty ledger", "unacknowledged entry kept", "unacknowledged entry cut off",
    "ledger of three fragments closed", "recoveries met", "recovery aborted on unknown",
    "recovery adopted another's end", "append during a recovery",
    "ensemble change beside a recovery", "entry written back", "late add refused by a fence",
    "duplicate add answered", "unknown ledger fenced", "torn tail replayed", "groups replayed",
    "ledger in limbo", "start interrupted", "bookie answered UNKNOWN", "writer fenced",
    "writer ran out of bookies", "close refused", "ledger gone", "open ledger followed",
    "ledger tailed to its end", "read beyond what is confirmed",
    "compare-and-set applied, reply lost", "power lost everywhere", "start refused",
    "directories emptied", "directories rolled back", "directories swapped",
    "refused disks brought back", "refused disks replaced", "refused disks the other process's",
    "second process refused", "process superseded", "place held in a new ledger",
    "held bookie back", "held bookie back, another one dead", "bookie became read-only",
    "recovery add refused", "add refused, read-only", "bookie takes entries again",
    "recovery add on the reserve", "fence on the reserve", "fence refused, exhausted", "sealed start",
    "sealed start over", "read from a full bookie", "read-only by hand", "checkpoint without room",
    "gentle run", "ledger collected", "copy too many dropped", "logs merged", "log rewritten", "share taken over",
    "share of an open ledger taken over", "limbo ended", "limbo marked", "damage marked",
)  # fmt: skip
_OF_FAULTS = {
    "F14 reply to a mutation lost": "compare-and-set applied, reply lost",
    "F3 power lost everywhere": "power lost everywhere",
}
_FINDERS = (
    _of_metadata,
    _of_recovery,
    _of_bookies,
    _of_disks,
    _of_held_places,
    _of_space,
    _of_clients,
    _of_healing,
)


def marks_of(history: h.History, injected: Counter[str]) -> list[str]:
    """The marks a run reached, sorted."""
    story = Story(history)
    marks = {mark for finder in _FINDERS for mark in finder(story)}
    marks |= {mark for fault, mark in _OF_FAULTS.items() if injected[fault]}
    return sorted(marks)
