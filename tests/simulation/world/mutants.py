"""Known bugs planted in the code that only whole clusters run.

The rules have their own mutants (:mod:`tests.simulation.rules.mutants`), which are hunted here, too;
these break what surrounds the rules - the bookie's shell, replay, storage, the drivers of writer and
recovery, the reader.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import replace

from bookie_server.bookie import Bookie
from bookie_server.core.absence import status_of_absence
from bookie_server.storage.checkpoint import _retire_below
from bookie_server.storage.recovery import _Recovery
from bookkeeper_metadata.foundation.invariant import InvariantViolation
from tests.simulation.kit import kills
from tests.simulation.kit.kills import Kill
from tests.simulation.kit.patching import Mutant, Mutants
from tests.simulation.rules import mutants_of_bookies, mutants_of_writers
from tests.simulation.world import mutants_of_healing, mutants_of_space
from tests.simulation.world.run import run_seed

MUTANTS = Mutants()
mutant = MUTANTS.planted
for _name, _of_the_rules, *_caught_by in (
    ("add_after_fence", mutants_of_bookies.MUTANTS["pending_fence_ignored"], "I8"),
    ("damage_is_absence", mutants_of_bookies.MUTANTS["corrupt_noentry"], "I12"),
    ("acknowledged_before_metadata", mutants_of_writers.MUTANTS["ack_before_meta"], "I17", "I15"),
    # BOOKKEEPER-112
    (
        "change_overrides_recovery",
        mutants_of_writers.MUTANTS["change_despite_recovery"],
        "I14",
        "I15",
    ),
):
    # Some of the rules' bugs have to be noticed here, too, and by these invariants.
    MUTANTS.add(replace(_of_the_rules, name=_name, caught_by=tuple(_caught_by)))


def hunt_in_world(
    mutant: Mutant, seeds: Iterable[int], expected: Collection[str] | None = None
) -> Kill | None:
    """Run worlds with the bug planted until an expected invariant notices (``None``: any at all)."""
    return kills.hunt(mutant, seeds, _labels_at, expected)


def _labels_at(seed: int) -> tuple[str, ...]:
    try:
        found = run_seed(seed).violations
    except InvariantViolation as error:
        found = [f"p_product_holds: {error}"]
    return tuple(dict.fromkeys(re.split(r"[_: ]", finding)[0].upper() for finding in found))


_FENCE = "fence(ledger_id, request.master_key"
mutant(
    "negative_before_durable_fence",
    "a fencing read is answered while its fence is still on the way to the disk",
    "I9",
).edit(
    Bookie.read,
    {f"await self.{_FENCE})": f"Status.OK\nself._run(self._admission.{_FENCE}, lambda _: None))"},
)

_OTHERS = '[record for record in group.records if type(record).__name__ != "Fence"]'
mutant(
    "fence_forgotten_in_replay",
    "a fence that only the journal holds is lost with the process (BOOKKEEPER-500)",
    "S2",
).edit(_Recovery.replay, {"apply(group.records": f"apply({_OTHERS}"})

_IN_DOUBT = "is_storage_damaged or is_deleted or may_have_lost"
mutant(
    "limbo_denies", "a bookie whose files were damaged answers as if nothing had happened", "I12"
).edit(status_of_absence, {_IN_DOUBT: "False"})

mutant(
    "answered_before_sync",
    "replies go out when the group is submitted, not when it is synced",
    "S1",
).edit(Bookie._run, {".submit(effect)": ".submit(effect)\nself._run(effect.then)"})

mutant(
    "journal_deleted_too_early",
    "a checkpoint deletes journal files beyond its marks (Apache #3329, #1255)",
    "S2",
).edit(_retire_below, {"id < mark.file_id": "id <= mark.file_id"})

for _mutant in (*mutants_of_space.MUTANTS.values(), *mutants_of_healing.MUTANTS.values()):
    MUTANTS.add(_mutant)
