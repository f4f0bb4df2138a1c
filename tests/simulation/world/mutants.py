"""Known bugs planted in the code that only whole clusters run.

The rules have their own mutants (:mod:`tests.simulation.rules.mutants`), which are hunted here, too;
these break what surrounds the rules - the bookie's shell, replay, storage, the drivers of writer and
recovery, the reader.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

from bookie_server.bookie import Bookie
from bookie_server.core.absence import status_of_absence
from bookie_server.core.effects import Persist
from bookie_server.core.records import Fence, JournalRecord
from bookie_server.storage import checkpoint
from bookie_server.storage.contents import Contents
from bookie_server.storage.disk.group import GroupEnd
from bookie_server.wire.messages import ReadRequest, Status, StoredReply
from bookkeeper_metadata.foundation.invariant import InvariantViolation
from bookkeeper_metadata.model import LedgerMetadata, LedgerState
from spark_bookkeeper.ledger import ensemble_change
from tests.simulation.kit import kills
from tests.simulation.kit.kills import Kill
from tests.simulation.kit.patching import Mutant, Mutants, Patch
from tests.simulation.rules import mutants_of_bookies, mutants_of_writers
from tests.simulation.world.run import run_seed

MUTANTS = Mutants()
mutant = MUTANTS.planted
for _name, _of_the_rules, *_caught_by in (
    ("add_after_fence", mutants_of_bookies.MUTANTS["pending_fence_ignored"], "I8"),
    ("damage_is_absence", mutants_of_bookies.MUTANTS["corrupt_noentry"], "I12"),
    ("acknowledged_before_metadata", mutants_of_writers.MUTANTS["ack_before_meta"], "I17", "I15"),
):
    # Three of the rules' bugs have to be noticed here, too, and by these invariants.
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


@mutant(
    "negative_before_durable_fence",
    "a fencing read is answered while its fence is still on the way to the disk",
    "I9",
)
def _negative_before_durable_fence(patch: Patch) -> None:
    read = Bookie.read

    async def hasty(self: Bookie, request: ReadRequest) -> StoredReply:
        if request.is_fencing:
            self._run(self._admission.fence(request.ledger_id, request.master_key, lambda _: None))
        return await read(self, replace(request, is_fencing=False))

    patch.method(Bookie, "read", hasty)


@mutant(
    "fence_forgotten_in_replay",
    "a fence that only the journal holds is lost with the process (BOOKKEEPER-500)",
    "S2",
)
def _fence_forgotten_in_replay(patch: Patch) -> None:
    apply = Contents._apply

    def forgetful(self: Contents, record: JournalRecord, journal_index: int) -> None:
        is_replay = not getattr(self, "journals", ())
        if not (is_replay and isinstance(record, Fence)):
            apply(self, record, journal_index)

    patch.method(Contents, "_apply", forgetful)


@mutant(
    "limbo_denies", "a bookie whose files were damaged answers as if nothing had happened", "I12"
)
def _limbo_denies(patch: Patch) -> None:
    def sure(facts: object, *, is_storage_damaged: bool) -> Status:
        return Status.NO_LEDGER if facts is None else Status.NO_ENTRY

    patch.function(status_of_absence, sure, source="4cf3557c")


@mutant(
    "answered_before_sync",
    "replies go out when the group is submitted, not when it is synced",
    "S1",
)
def _answered_before_sync(patch: Patch) -> None:
    run = Bookie._run

    def hasty(self: Bookie, effects: Sequence[Any]) -> None:
        run(self, effects)
        for effect in effects:
            if isinstance(effect, Persist):
                run(self, effect.then)

    patch.method(Bookie, "_run", hasty)


@mutant(
    "journal_deleted_too_early",
    "a checkpoint deletes journal files beyond its marks (Apache #3329, #1255)",
    "S2",
)
def _journal_deleted_too_early(patch: Patch) -> None:
    delete = checkpoint._delete_below

    def eager(files: Any, directory: str, mark: GroupEnd) -> None:
        delete(files, directory, replace(mark, file_id=mark.file_id + 1))

    patch.function(delete, eager)


@mutant(
    "change_overrides_recovery",
    "the writer's ensemble change does not care that somebody recovers (BOOKKEEPER-112)",
    "I14",
    "I15",
)
def _change_overrides_recovery(patch: Patch) -> None:
    commit = ensemble_change._commit

    async def stubborn(cluster: Any, ledger_id: int, known: Any, change: Any, how: Any) -> Any:
        update = cluster.update

        async def reopen(at: int, transform: Any, believed: Any) -> Any:
            def careless(metadata: LedgerMetadata) -> Any:
                if metadata.state is LedgerState.IN_RECOVERY:
                    open_again = replace(metadata, state=LedgerState.OPEN)
                    return replace(transform(open_again), state=LedgerState.IN_RECOVERY)
                return transform(metadata)

            return await update(at, careless, believed)

        cluster.update = reopen
        try:
            return await commit(cluster, ledger_id, known, change, how)
        finally:
            cluster.update = update

    patch.function(commit, stubborn)
