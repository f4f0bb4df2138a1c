"""An add of entries that are stored already: are they the same, and may it replace what is unreadable?

A writer that never had its answer sends the same bytes again, and recovery writes back what may be
there. Equal bytes are OK, others a CONFLICT. A stored copy that cannot be read is nobody's evidence:
a writer's add is answered UNKNOWN then, a recovery's may replace it, and nothing but it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Protocol

from bookie_server.core.effects import Compare
from bookie_server.core.presence import Presence
from bookie_server.core.same_entries import same_entries
from bookie_server.storage.logs.rows import Block
from bookie_server.storage.read_outcome import ReadOutcome
from bookie_server.storage.read_plan import ReadPlan
from bookie_server.wire.messages import Status
from bookie_server.wire.record import Run, parse_run
from bookkeeper_metadata.model import ENTRY_ID_MAX

COMPARE_SIZE_BYTES = 1024 * 1024
"""Stored bytes that a duplicate is compared with at a time."""
_LOOKS_MAX = 8
"""Each look but the first means that somebody else replaced a damaged entry during the one before."""


class PlanRead(Protocol):
    """See ``Contents.plan_read``."""

    def __call__(
        self,
        ledger_id: int,
        first: int,
        last: int,
        *,
        size_bytes_max: int,
        select: Callable[[Sequence[int]], Sequence[int]],
    ) -> ReadPlan: ...


async def compare_with_stored(
    effect: Compare,
    plan_read: PlanRead,
    fetch: Callable[[Callable[[], ReadPlan]], Awaitable[ReadOutcome]],
) -> Status | list[Run]:
    """The answer to the add, or its entries whose stored copies cannot be read and may be replaced.

    The latter holds until the caller waits for anything.
    """
    for _ in range(_LOOKS_MAX):
        damaged: list[Run] = []
        before: dict[int, tuple[str, Block]] = {}
        rest: Run | None = effect.run
        # Piece by piece: what is stored under the ids of a few bytes may be large.
        while rest is not None:
            # Named nowhere here: a plan keeps the cached frames in which it finds anything.
            make_plan = partial(plan_compare, plan_read, rest, size_bytes_max=COMPARE_SIZE_BYTES)
            outcome = await fetch(make_plan)
            if not all(
                same_entries(effect.run, parse_run(chunk), effect.digest_size)
                for chunk in outcome.chunks
            ):
                return Status.CONFLICT
            if any(rest.between(*span) is not None for span in outcome.of(Presence.ABSENT)):
                # It was stored when the add came; whatever became of it, nothing vouches for it now.
                return Status.UNKNOWN
            spans = outcome.of(Presence.DAMAGED)
            if spans and (effect.recovery_key is None or outcome.is_short):
                return Status.UNKNOWN
            damaged += [run for span in spans if (run := rest.between(*span)) is not None]
            before |= outcome.damaged_places
            not_reached = outcome.of(Presence.NOT_REACHED)
            rest = rest.between(not_reached[0][0], rest.last_entry) if not_reached else None
        if not damaged:
            return Status.OK
        # While the disk was read, another recovery may have
        # replaced what was damaged then.
        now: dict[int, tuple[str, Block]] = {}
        for run in damaged:
            now |= plan_compare(plan_read, run, size_bytes_max=ENTRY_ID_MAX).resting
        if all(before[id] == now.get(id) for run in damaged for id in run.entry_ids):
            return damaged
    return Status.UNKNOWN


def plan_compare(plan_read: PlanRead, run: Run, *, size_bytes_max: int) -> ReadPlan:
    """Find the places of the stored entries that have the ids of ``run``, up to a size as in a read."""
    ids_of_run = run.entry_ids if isinstance(run.entry_ids, range) else set(run.entry_ids)
    return plan_read(
        run.ledger_id,
        run.first_entry,
        run.last_entry,
        size_bytes_max=size_bytes_max,
        select=lambda ids: [entry_id for entry_id in ids if entry_id in ids_of_run],
    )
