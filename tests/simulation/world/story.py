"""What a history says, sorted for the checkers: who held what when, and how each ledger's metadata went.

Times are indexes into the history. Everything is the observer's view: "durable" means a sync that
covered it returned, or a restart found it on the disk, whatever anybody was told.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from bookie_server.wire.messages import Status
from bookkeeper_metadata.model import LedgerMetadata, LedgerState
from tests.simulation.kit.quorums import write_set
from tests.simulation.world import collection_history as c
from tests.simulation.world import history as h
from tests.simulation.world.healing_history import LimboEnded

NEVER = 1 << 60
DENIALS = (Status.NO_ENTRY, Status.NO_LEDGER)
"""The only answers that are evidence of absence. The checkers' arithmetic and this list are their
own: a mistake in the product's must not blind them.
"""


class Replaced(NamedTuple):
    """A bookie in the place of another."""

    bookie: str
    entries: range
    """Of the fragment; a striped one's are not all the bookie's."""


class Story:
    """Made once per history; read by all checkers."""

    def __init__(self, history: h.History) -> None:
        self.history = history
        self.sent: dict[tuple[int, int], bytes] = {}
        self.acked: dict[int, list[h.Acked]] = {}
        self._durable: dict[tuple[str, int], list[dict[int, int]]] = {}
        """(bookie, ledger) -> between two drops: entry -> when it first became durable."""
        self._drops: dict[tuple[str, int], list[int]] = {}
        self.crcs: dict[tuple[int, int], int] = {}
        """(ledger, entry) -> crc of the first record anybody stored."""
        self.fenced: dict[tuple[str, int], int] = {}
        """(bookie, ledger) -> when its fence became durable."""
        self._limbo_ended: dict[tuple[str, int], int] = {}
        self.versions: dict[int, list[h.Committed]] = {}
        self.deleted: dict[int, int] = {}
        self.damaged: dict[str, int] = {}
        self._deletions: dict[str, list[c.Deleting]] = {}
        for event in history.events:
            match event:
                case h.Durable():
                    held = self._durable.setdefault((event.bookie, event.ledger), [{}])
                    held[-1].setdefault(event.entry, event.index)
                    self.crcs.setdefault((event.ledger, event.entry), event.crc)
                case h.Appended():
                    for number, payload in enumerate(event.payloads):
                        self.sent[event.ledger, event.entry + number] = payload
                case h.Acked():
                    self.acked.setdefault(event.ledger, []).append(event)
                case h.FenceDurable():
                    self.fenced.setdefault((event.bookie, event.ledger), event.index)
                case LimboEnded():
                    self._limbo_ended.setdefault((event.bookie, event.ledger), event.index)
                case h.Committed():
                    self.versions.setdefault(event.ledger, []).append(event)
                case h.Deleted():
                    self.deleted[event.ledger] = event.index
                case c.Dropping():
                    key = event.bookie, event.ledger
                    self._drops.setdefault(key, []).append(event.index)
                    self._durable.setdefault(key, [{}]).append({})
                case c.DropUndone():
                    key = event.bookie, event.ledger
                    self._drops[key].pop()
                    self._durable[key][-2].update(self._durable[key].pop())
                case c.Deleting():
                    self._deletions.setdefault(event.bookie, []).append(event)
                case h.Damaged():
                    self.damaged.setdefault(event.bookie, event.index)
                case _:
                    pass

    def metadata(self, ledger: int, at: int) -> LedgerMetadata | None:
        """What the tree held of a ledger at a moment."""
        if self.deleted.get(ledger, NEVER) < at:
            return None
        found: LedgerMetadata | None = None
        for commit in self.versions.get(ledger, []):
            if commit.index < at:
                found = commit.metadata
        return found

    def in_recovery(self, ledger: int, at: int) -> LedgerMetadata | None:
        """What a recovery that was under way at a moment began with."""
        for commit in self.versions.get(ledger, []):
            if commit.index < at and commit.metadata.state is LedgerState.IN_RECOVERY:
                return commit.metadata
        return None

    def changes(self) -> Iterator[tuple[LedgerMetadata, h.Committed]]:
        """Each change of a ledger's metadata: what stood before, and the commit."""
        for versions in self.versions.values():
            for before, after in pairwise(versions):
                yield before.metadata, after

    def replacements(self, before: LedgerMetadata, commit: h.Committed) -> list[Replaced]:
        """Who took over whose shares of complete fragments; nobody, if that is not all that the commit changed."""
        after = commit.metadata
        if (before.state, len(before.fragments)) != (after.state, len(after.fragments)):
            return []
        found: list[Replaced] = []
        for number, (old, new) in enumerate(zip(before.fragments, after.fragments, strict=True)):
            if old == new:
                continue
            is_last = number == len(after.fragments) - 1
            if old.first_entry != new.first_entry or (is_last and not after.is_closed):
                return []
            last = after.last_entry if is_last else after.fragments[number + 1].first_entry - 1
            came = [each for at, each in enumerate(new.ensemble) if each != old.ensemble[at]]
            if not set(came).isdisjoint(old.ensemble):
                return []
            found += [Replaced(each, range(new.first_entry, last + 1)) for each in came]
        return found

    def takes_no_adds_since(self, bookie: str, ledger: int) -> int | None:
        """Since when a bookie takes no ordinary add of a ledger, whether or not it crashes.

        The end of a limbo fences, in memory until the next checkpoint: until then the disk
        says "in limbo", which refuses adds as well.
        """
        key = bookie, ledger
        since = min(self.fenced.get(key, NEVER), self._limbo_ended.get(key, NEVER))
        return since if since < NEVER else None

    def is_assigned(self, bookie: str, ledger: int, entry: int, at: int) -> bool:
        """Whether the metadata of a moment names the bookie for an entry that may be asked for."""
        metadata = self.metadata(ledger, at)
        if metadata is None or (metadata.is_closed and entry > metadata.last_entry):
            return False
        return bookie in write_set(metadata, entry)

    def end(self, ledger: int) -> h.Committed | None:
        """The commit that closed a ledger."""
        for commit in self.versions.get(ledger, []):
            if commit.metadata.is_closed:
                return commit
        return None

    def acked_before(self, ledger: int, at: int) -> int:
        """How many entries had been acknowledged."""
        return sum(ack.index < at for ack in self.acked.get(ledger, []))

    def is_durable(self, bookie: str, ledger: int, entry: int, at: int) -> bool:
        """Whether a bookie had stored an entry by then, in whatever incarnation."""
        return self.durable(bookie, ledger, at).get(entry, NEVER) < at

    def durable(self, bookie: str, ledger: int, at: int) -> dict[int, int]:
        """Entries that a bookie stored, before or after a moment, and when first; nothing from the other side of a drop."""
        key = bookie, ledger
        held = self._durable.get(key, [{}])
        return held[bisect_left(self._drops.get(key, ()), at)]

    def holders(self) -> Iterator[tuple[str, int]]:
        """Each bookie with each ledger of which it ever stored anything."""
        return iter(self._durable)

    def is_deleting(self, bookie: str, ledger: int, at: int) -> bool:
        """Whether a bookie had begun to delete a ledger by then: a crash may keep it from that."""
        return any(
            each.first <= ledger <= each.last and each.index < at
            for each in self._deletions.get(bookie, ())
        )

    def copies(self, metadata: LedgerMetadata, ledger: int, entry: int, at: int) -> int:
        """How many of the entry's write set, by this metadata, had stored it by then."""
        holders = write_set(metadata, entry)
        return sum(self.is_durable(bookie, ledger, entry, at) for bookie in holders)
