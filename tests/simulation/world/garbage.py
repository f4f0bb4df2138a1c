"""Garbage: what a bookie keeps of ledgers that are deleted."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from bookie_server.storage.logs.entry_log import log_ids
from tests.simulation.world.history import Damaged

if TYPE_CHECKING:
    from tests.simulation.world.bookies import SimBookie


def keeps_garbage(bookie: SimBookie, living: Collection[int]) -> bool:
    """Whether it does not serve, or holds a deleted ledger or an entry log that no ledger is in.

    What damage has left of a log, or taken from an index, is kept.
    """
    serving = bookie._bookie
    if serving is None or not set(serving.held_ledgers) <= set(living):
        return True
    harmed = {event.bookie for event in bookie.history.of(Damaged)}
    for index in () if bookie.name in harmed else serving.storage.checkpoints._indexes:
        named = {log for rows in index.rows.values() for log in rows.log_ids()}
        if not named.issuperset(log_ids(bookie.files, index.directory)):
            return True
    return False
