"""Verifier: reads what is stored to find out whether it can be read, for nobody.

It asks for memory as one client among the others, so that readers do not wait for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from bookie_server.core.damaged_entries import DamagedEntries
from bookie_server.core.presence import Presence
from bookie_server.memory.budget import MemoryBudget
from bookie_server.reads.fetching import Fetcher
from bookie_server.storage.contents import Contents
from bookie_server.storage.read_outcome import ReadOutcome
from bookie_server.wire.record import Run
from bookie_server.wire.stripe import EVERY_ID, Stripe
from bookkeeper_metadata.foundation.pace import LoopPace
from bookkeeper_metadata.model import ENTRY_ID_MAX

STEP_SIZE_BYTES = 1024 * 1024
"""Read at a time."""
_CLIENT = "verification of what is stored"
_GAP_MAX = 64
"""Entries that are read again beside damaged ones, rather than step over them: a block holds about so many."""
_NO_DEFECT = frozenset({Presence.FOUND, Presence.NOT_REACHED})
_NO_DAMAGE = frozenset({Presence.FOUND, Presence.ABSENT})


@dataclass(frozen=True, slots=True)
class Verified:
    """What one step found."""

    size_bytes: int
    is_sound: bool | None
    """Whether each entry that was looked for is stored and can be read; ``None``: for want of descriptors
    nobody could look."""
    next_entry: int | None
    """Where the next step begins; ``None``: there is none."""


class Verifier:
    """One bookie's; for use on its event loop."""

    def __init__(
        self,
        contents: Contents,
        fetcher: Fetcher,
        damaged: DamagedEntries,
        budget: MemoryBudget,
    ) -> None:
        self._contents = contents
        self._fetcher = fetcher
        self._damaged = damaged
        self._budget = budget

    @property
    def damaged_ledgers(self) -> Sequence[int]:
        """The ledgers with entries that could not be read the last time."""
        return self._damaged.ledgers

    def has_damage(self, ledger_id: int) -> bool:
        """Whether the ledger is one of these."""
        return bool(self._damaged.of(ledger_id))

    @property
    def damaged_count(self) -> int:
        """How many entries those are, as far as they are kept in mind."""
        return len(self._damaged)

    async def verify(
        self, ledger_id: int, first: int, last: int = ENTRY_ID_MAX, stripe: Stripe = EVERY_ID
    ) -> Verified:
        """Read the entries ``first..last`` of a stripe, as far as one step goes; what cannot be read is kept in mind."""
        outcome = await self._read(ledger_id, first, last, stripe)
        is_sound: bool | None = all(span.presence in _NO_DEFECT for span in outcome.spans)
        if outcome.is_short and not outcome.of(Presence.ABSENT):
            is_sound = None
        return Verified(outcome.size_bytes, is_sound, _next_entry(outcome))

    async def look_again(self, ledger_id: int, pace: LoopPace) -> Sequence[int]:
        """Read what could not be read; returns what still cannot be, ascending.

        It is not stored any more, or the disk had a bad moment.
        """
        for first, last in _groups(sorted(self._damaged.of(ledger_id))):
            at: int | None = first
            while at is not None:
                outcome = await self._read(ledger_id, at, last, EVERY_ID)
                for span in outcome.spans:
                    if span.presence in _NO_DAMAGE:
                        self._damaged.discard(ledger_id, range(span.first, span.last + 1))
                at = _next_entry(outcome)
                await pace.take(outcome.size_bytes)
        return sorted(self._damaged.of(ledger_id))

    def begin_walk(self) -> None:
        """All that is stored is about to be verified; see ``DamagedEntries.begin_turn``."""
        self._damaged.begin_turn()

    def forget(self, ledger_id: int) -> None:
        """The ledger is deleted."""
        self._damaged.forget(ledger_id)

    def on_replaced(self, run: Run) -> None:
        """Other copies of these are stored."""
        self._damaged.discard(run.ledger_id, run.entry_ids)

    async def _read(self, ledger_id: int, first: int, last: int, stripe: Stripe) -> ReadOutcome:
        make_plan = partial(
            self._contents.plan_read,
            ledger_id,
            first,
            last,
            stripe=stripe,
            size_bytes_max=STEP_SIZE_BYTES,
        )
        with self._budget.room(_CLIENT) as room:
            return await self._fetcher.fetch_one(make_plan, room)


def _next_entry(outcome: ReadOutcome) -> int | None:
    """The first one that was not reached."""
    return next((first for first, _ in outcome.of(Presence.NOT_REACHED)), None)


def _groups(entry_ids: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The ends of what lies near each other."""
    first = 0
    for at, entry_id in enumerate(entry_ids, 1):
        if at == len(entry_ids) or entry_ids[at] - entry_id > _GAP_MAX:
            yield entry_ids[first], entry_id
            first = at
