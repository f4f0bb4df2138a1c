"""Fetcher: gets stored records into memory, once there is room for them.

What a plan finds may be a cached run, which a checkpoint would otherwise let go of. So a plan is not
kept while room is waited for, but made anew. So is one whose entry log is gone when it is executed:
logs are deleted behind the backs of readers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from bookie_server.core.damaged_entries import DamagedEntries
from bookie_server.memory.budget import Room
from bookie_server.reads.damage_log import DamageLog
from bookie_server.storage.engine import Storage
from bookie_server.storage.read_outcome import ReadOutcome
from bookie_server.storage.read_plan import ReadPlan
from bookie_server.workers import Workers
from bookkeeper_metadata.model import ENTRY_ID_MAX

_PLANS_OUTDATED_MAX = 3
"""So many plans may name a log that is gone; one more, and the log was lost, not deleted."""


class Fetcher:
    """One bookie's; for use on its event loop."""

    def __init__(
        self,
        storage: Storage,
        workers: Workers,
        damage_log: DamageLog,
        damaged_entries: DamagedEntries,
    ) -> None:
        self._storage = storage
        self._workers = workers
        self._damage_log = damage_log
        self._damaged_entries = damaged_entries

    async def fetch(
        self, make_plans: Callable[[], Sequence[ReadPlan]], room: Room | None = None
    ) -> Sequence[ReadOutcome]:
        """Execute the plans that ``make_plans`` makes from the present contents.

        What their outcomes take of memory is put into ``room``, which is empty; ``None``: unaccounted.
        """
        for _ in range(_PLANS_OUTDATED_MAX):
            outcomes = await self._fetch(make_plans, room)
            if not any(outcome.is_outdated for outcome in outcomes):
                break
            if room is not None:
                room.release()
        else:
            outcomes = await self._fetch(make_plans, room)
        for outcome in outcomes:
            self._damage_log.note(outcome.damage)
            # Of what there was no descriptor for, nothing is known.
            if outcome.damaged_places and not outcome.is_short:
                self._damaged_entries.add(outcome.ledger_id, self._still_there(outcome))
        return outcomes

    def _still_there(self, outcome: ReadOutcome) -> Sequence[int]:
        """The damaged ones, but for those that a copy took the place of while they were read."""
        places = outcome.damaged_places
        now = self._storage.contents.plan_read(
            outcome.ledger_id, min(places), max(places), size_bytes_max=ENTRY_ID_MAX
        ).resting
        return [entry_id for entry_id, place in places.items() if now.get(entry_id) == place]

    async def _fetch(
        self, make_plans: Callable[[], Sequence[ReadPlan]], room: Room | None
    ) -> Sequence[ReadOutcome]:
        plans = make_plans()
        size_bytes = _memory_bytes(plans)
        if room is not None and not room.try_take(size_bytes):
            # Here, too: a plan that any frame of this call names is kept.
            del plans
            plans = await self._plan_within(room, size_bytes, make_plans)
        return [await self._execute(plan) for plan in plans]

    async def _plan_within(
        self, room: Room, size_bytes: int, make_plans: Callable[[], Sequence[ReadPlan]]
    ) -> Sequence[ReadPlan]:
        """Plans for which there is room, made when there was; see the module."""
        while True:
            # For all of them at once: whoever held room and waited for more could wait for ever.
            await room.take(size_bytes)
            plans = make_plans()
            needed_bytes = _memory_bytes(plans)
            if needed_bytes <= size_bytes:
                room.resize(needed_bytes)
                return plans
            # What was in memory has gone to the disk meanwhile, and costs more to read.
            del plans
            size_bytes = needed_bytes
            room.release()

    async def fetch_one(
        self, make_plan: Callable[[], ReadPlan], room: Room | None = None
    ) -> ReadOutcome:
        """Execute one plan; see :meth:`fetch`."""
        return (await self.fetch(lambda: (make_plan(),), room))[0]

    async def _execute(self, plan: ReadPlan) -> ReadOutcome:
        # Cached entries are views of memory: no thread needs to be asked for them.
        if not plan.needs_disk:
            return self._storage.execute(plan)
        return await self._workers.read(partial(self._storage.execute, plan))


def _memory_bytes(plans: Sequence[ReadPlan]) -> int:
    return sum(plan.memory_bytes for plan in plans)
