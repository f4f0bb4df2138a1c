"""What a bookie's start found on its disk, as the observer may know it.

A group that a crash cut off may have become durable without anybody's having heard of it: the observer
hears of it when a start finds it.
"""

from __future__ import annotations

import zlib

from bookie_server.storage.engine import Storage
from tests.simulation.kit.storage_model import read_all
from tests.simulation.world.collection_history import Dropped, Dropping, DropUndone
from tests.simulation.world.history import BookieUp, Durable, Event, FenceDurable, History


class StartReport:
    """Of one bookie, over all its starts."""

    def __init__(self, history: History, bookie: str) -> None:
        self._history = history
        self._bookie = bookie
        self._known: dict[int, set[int]] = {}
        """Entries the observer saw become durable."""
        self._known_fences: set[int] = set()
        self._dropping: set[int] = set()
        """Ledgers of which it may have forgotten everything, or nothing."""
        history.listeners.append(self._learn)

    def report(self, storage: Storage, incarnation: int) -> None:
        """Tell what there is; the rest of a group that was cut off may have become durable."""
        history, bookie = self._history, self._bookie
        held: list[tuple[int, tuple[int, ...]]] = []
        for ledger_id in sorted(storage.contents.ledgers):
            ids = tuple(e for part in storage.contents.entry_ids(ledger_id) for e in part)
            held.append((ledger_id, ids))
            if ledger_id in self._dropping and not ids:
                self._forget(ledger_id)
            elif ledger_id in self._dropping:
                self._dropping.discard(ledger_id)
                history.record(DropUndone(bookie, ledger_id))
            if set(ids) <= self._known.get(ledger_id, set()):
                continue
            for entry_id, record in read_all(storage, ledger_id).items():
                if entry_id not in self._known.get(ledger_id, set()):
                    history.record(Durable(bookie, ledger_id, entry_id, zlib.crc32(record)))
        facts = sorted(storage.contents.ledgers.items())
        fenced = tuple(ledger_id for ledger_id, handle in facts if handle.is_fenced)
        limbo = tuple(ledger_id for ledger_id, handle in facts if handle.is_limbo)
        for ledger_id in fenced:
            if ledger_id not in self._known_fences:
                history.record(FenceDurable(bookie, ledger_id))
        groups = storage.recovery.groups_torn, storage.recovery.groups
        history.record(BookieUp(bookie, incarnation, tuple(held), fenced, limbo, *groups))

    def _forget(self, ledger_id: int) -> None:
        self._dropping.discard(ledger_id)
        self._known.pop(ledger_id, None)

    def _learn(self, event: Event) -> None:
        if isinstance(event, Durable) and event.bookie == self._bookie:
            self._known.setdefault(event.ledger, set()).add(event.entry)
        elif isinstance(event, Dropping) and event.bookie == self._bookie:
            self._dropping.add(event.ledger)
        elif isinstance(event, Dropped) and event.bookie == self._bookie:
            self._forget(event.ledger)
        elif isinstance(event, FenceDurable) and event.bookie == self._bookie:
            self._known_fences.add(event.ledger)
