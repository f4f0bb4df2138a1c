"""Finding entries, in two steps: the loop thread plans where they are, any thread fetches them.

A plan is immutable: cached runs by reference, blocks by location, wanted ids. What the plan does not
find in cache, snapshot or index is *absent*; what it finds but cannot be read with a good checksum
is *damaged*, and never absent; what the byte limit leaves out is *not reached*. The second step is
:mod:`bookie_server.storage.read_blocks`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from bookie_server.storage.logs.rows import Block, Row
from bookie_server.storage.stored import Stored, size_bytes_of
from bookie_server.wire.limits import ENTRY_SIZE_MAX
from bookie_server.wire.record import LENGTH_SIZE
from bookie_server.wire.stripe import Stripe
from bookkeeper_metadata.foundation.invariant import invariant
from bookkeeper_metadata.model import NO_ENTRY_ID

PREAD_SIZE_MAX = (1024 + 128) * 1024
"""Neighbouring blocks are fetched with one read up to this size: a MiB that is wanted, and the rest of the blocks at its ends."""
SPANS_MAX = 8_192
"""About the most spans of one outcome; of entries with gaps between them there are two for each."""
_PLAN_ITEMS_MAX = 4096
"""Most places looked at for one plan; the ids behind them are reported as not reached."""
_PLAN_IDS_MAX = 65_536
"""About the most ids looked at for one plan; more of the smallest records fit no reply."""
_RECORD_SIZE_MAX = LENGTH_SIZE + ENTRY_SIZE_MAX


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """Where the asked entries are. The loop thread makes it, any thread executes it."""

    ledger_id: int
    first: int
    last: int
    stripe: Stripe
    size_bytes_max: int
    stored: tuple[Stored, ...]
    """Ascending, spans disjoint."""
    planned_last: int
    """The highest id looked for; asked ids behind it are reported as not reached."""
    spans_max: int = SPANS_MAX

    @property
    def needs_disk(self) -> bool:
        """Whether executing it blocks on files."""
        return any(isinstance(item.place, Row) for item in self.stored)

    @property
    def resting(self) -> dict[int, tuple[str, Block]]:
        """Directory and block of the entries that rest in entry logs."""
        return {
            entry_id: (item.directory, item.place.block)
            for item in self.stored
            if isinstance(item.place, Row)
            for entry_id in item.ids
        }

    @property
    def memory_bytes(self) -> int:
        """Most memory that it takes to execute it, to join its records into a reply, and to send that.

        gRPC sends a copy, so a reply counts twice; what was fetched is let go of before there is one.
        Until then at most half of what is kept is not wanted, and one read of the disk is looked through.
        """
        if not self.stored:
            return 0
        sizes = [size_bytes_of(item.place) for item in self.stored]
        # One entry comes whatever its size, and it lies in the first place.
        reply = min(sum(sizes), max(self.size_bytes_max, min(sizes[0], _RECORD_SIZE_MAX)))
        kept, looked_through = 2 * reply, max(PREAD_SIZE_MAX, *sizes)
        fetched = min(sum(sizes), kept + looked_through) if self.needs_disk else reply
        return reply + fetched


def plan_of(
    found: Iterable[Stored],
    ledger_id: int,
    first: int,
    last: int,
    *,
    stripe: Stripe,
    size_bytes_max: int,
    select: Callable[[Sequence[int]], Sequence[int]] | None = None,
) -> ReadPlan:
    """Plan a read of what was ``found`` of ``first..last``, up to about ``size_bytes_max`` bytes.

    ``select`` picks the ids that are wanted; without one those of the stripe are.
    """
    invariant(0 <= first <= last, "a read asks for at least one id")
    select = select or stripe.select
    first_wanted = stripe.next(first)
    stored: list[Stored] = []
    places = id_count = size = 0
    planned_last, looked_at = last, NO_ENTRY_ID
    for item in found:
        is_full = size >= size_bytes_max or places >= _PLAN_ITEMS_MAX or id_count >= _PLAN_IDS_MAX
        # A reply that says nothing of any wanted id would be asked for again for ever.
        if is_full and looked_at >= first_wanted:
            # What lies behind was not looked for: to report it as
            # absent would be a false denial.
            planned_last = looked_at
            break
        places, id_count, looked_at = places + 1, id_count + len(item.ids), item.ids[-1]
        if ids := select(item.ids):
            is_all = ids is item.ids
            stored.append(item if is_all else Stored(ids, item.place, item.directory))
            size += stored[-1].size_bytes
    return ReadPlan(ledger_id, first, last, stripe, size_bytes_max, tuple(stored), planned_last)
