"""An add of entries that are stored already: are they the same, and may it replace what is unreadable?

A writer that never had its answer sends the same bytes again, and recovery writes back what may be
there. Equal bytes are OK, others a CONFLICT. A stored copy that cannot be read is nobody's evidence:
a writer's add is answered UNKNOWN then, a recovery's may replace it, and nothing but it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from bookie_server.core.admission import same_entries
from bookie_server.core.effects import Compare
from bookie_server.core.presence import Presence
from bookie_server.storage.logs.rows import Block, Row
from bookie_server.storage.read_plan import ReadOutcome, ReadPlan
from bookie_server.wire.messages import Status
from bookie_server.wire.record import Run, parse_run

_LOOKS_MAX = 8
"""Each look but the first means that somebody else replaced a damaged entry during the one before."""


async def compare_with_stored(
    effect: Compare,
    plan_compare: Callable[[Run], ReadPlan],
    execute: Callable[[ReadPlan], Awaitable[ReadOutcome]],
) -> Status | list[Run]:
    """The answer to the add, or its entries whose stored copies cannot be read and may be replaced.

    The latter holds until the caller waits for anything.
    """
    for _ in range(_LOOKS_MAX):
        plan = plan_compare(effect.run)
        outcome = await execute(plan)
        if not all(
            same_entries(effect.run, parse_run(chunk), effect.digest_size)
            for chunk in outcome.chunks
        ):
            return Status.CONFLICT
        spans = outcome.of(Presence.DAMAGED)
        if not spans:
            return Status.OK
        if effect.recovery_key is None or outcome.is_short:
            return Status.UNKNOWN
        damaged = [run for span in spans if (run := effect.run.between(*span)) is not None]
        # While the disk was read, another recovery may have
        # replaced what was damaged then.
        before, now = _blocks(plan), _blocks(plan_compare(effect.run))
        if all(before[id] == now.get(id) for run in damaged for id in run.entry_ids):
            return damaged
    return Status.UNKNOWN


def _blocks(plan: ReadPlan) -> dict[int, tuple[str, Block]]:
    """Where the entries are that rest in entry logs."""
    return {
        entry_id: (item.directory, item.place.block)
        for item in plan.stored
        if isinstance(item.place, Row)
        for entry_id in item.ids
    }
