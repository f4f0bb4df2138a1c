"""Known bugs planted in the code that only whole clusters run: each must be noticed.

The rules have their own mutants (:mod:`tests.simulation.rules`); these break what surrounds them -
the bookie's shell, replay, storage, the drivers of writer and recovery, the reader. A mutant counts
as noticed when any invariant rejects any of the first seeds; the seeds are fixed, so is the result.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from bookie_server.bookie import Bookie
from bookie_server.core.absence import status_of
from bookie_server.core.admission import Admission
from bookie_server.core.effects import Persist
from bookie_server.core.presence import Presence
from bookie_server.core.records import Fence, JournalRecord
from bookie_server.storage import checkpoint
from bookie_server.storage.contents import Contents
from bookie_server.storage.disk.group import GroupEnd
from bookie_server.wire.messages import ReadRequest, Status, StoredReply
from bookkeeper_metadata.model import LedgerMetadata, LedgerState
from spark_bookkeeper.ledger import ensemble_change
from spark_bookkeeper.ledger.protocol.writer_state import WriterState
from tests.simulation.run import run_seed

SEEDS_MAX = 600

Patch = pytest.MonkeyPatch


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Thousands of injected faults are not worth a warning each."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@dataclass(frozen=True)
class Mutant:
    """A bug, and how to plant it."""

    plant: Callable[[Patch], None]
    noticed_by: tuple[str, ...]
    """Beginnings of the findings of which one has to come up."""
    is_rare: bool = False
    """Whether hundreds of seeds pass before."""

    def __str__(self) -> str:
        return self.plant.__name__

    @property
    def marks(self) -> list[pytest.MarkDecorator]:
        """Rare ones are for the long suite."""
        return [pytest.mark.full] if self.is_rare else []


def negative_before_durable_fence(patch: Patch) -> None:
    """A fencing read is answered while its fence is still on the way to the disk."""
    read = Bookie.read

    async def hasty(self: Bookie, request: ReadRequest) -> StoredReply:
        if request.is_fencing:
            self._run(self._admission.fence(request.ledger_id, request.master_key, lambda _: None))
        return await read(self, replace(request, is_fencing=False))

    patch.setattr(Bookie, "read", hasty)


def fence_forgotten_in_replay(patch: Patch) -> None:
    """A fence that only the journal holds is lost with the process (BOOKKEEPER-500)."""
    apply = Contents._apply

    def forgetful(self: Contents, record: JournalRecord, journal_index: int) -> None:
        is_replay = not getattr(self, "journals", ())
        if not (is_replay and isinstance(record, Fence)):
            apply(self, record, journal_index)

    patch.setattr(Contents, "_apply", forgetful)


def add_after_fence(patch: Patch) -> None:
    """A fence holds only once it is durable: an add slips in before (Apache #2614's kin)."""

    def late(self: Admission, ledger_id: int) -> bool:
        facts = self._durable.ledgers.get(ledger_id)
        return facts is not None and facts.is_fenced

    patch.setattr(Admission, "_is_fenced", late)


def damage_is_absence(patch: Patch) -> None:
    """A copy that cannot be read is reported as no such entry (Apache #2908)."""

    def sure(presence: Presence, absence: Status) -> Status:
        return absence if presence is Presence.DAMAGED else status_of(presence, absence)

    patch.setattr("bookie_server.bookie.status_of", sure)


def limbo_denies(patch: Patch) -> None:
    """A bookie whose files were damaged answers as if nothing had happened."""

    def sure(facts: object, *, is_storage_damaged: bool) -> Status:
        return Status.NO_LEDGER if facts is None else Status.NO_ENTRY

    patch.setattr("bookie_server.bookie.status_of_absence", sure)


def answered_before_sync(patch: Patch) -> None:
    """Replies go out when the group is submitted, not when it is synced."""
    run = Bookie._run

    def hasty(self: Bookie, effects: Sequence[Any]) -> None:
        run(self, effects)
        for effect in effects:
            if isinstance(effect, Persist):
                run(self, effect.then)

    patch.setattr(Bookie, "_run", hasty)


def journal_deleted_too_early(patch: Patch) -> None:
    """A checkpoint deletes journal files beyond its marks (Apache #3329, #1255)."""
    delete = checkpoint._delete_below

    def eager(files: Any, directory: str, mark: GroupEnd) -> int:
        return delete(files, directory, replace(mark, file_id=mark.file_id + 1))

    patch.setattr(checkpoint, "_delete_below", eager)


def acknowledged_before_metadata(patch: Patch) -> None:
    """The writer acknowledges during an ensemble change (Apache #1591)."""
    patch.setattr(WriterState, "_may_acknowledge", lambda self: self.error is None)


def change_overrides_recovery(patch: Patch) -> None:
    """The writer's ensemble change does not care that somebody recovers (BOOKKEEPER-112)."""
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

    patch.setattr(ensemble_change, "_commit", stubborn)


MUTANTS = (
    Mutant(negative_before_durable_fence, ("i9",)),
    Mutant(fence_forgotten_in_replay, ("s2",)),
    Mutant(add_after_fence, ("i8",)),
    Mutant(damage_is_absence, ("i12",)),
    Mutant(limbo_denies, ("i12",), is_rare=True),
    Mutant(answered_before_sync, ("s1",)),
    Mutant(journal_deleted_too_early, ("s2",)),
    Mutant(acknowledged_before_metadata, ("i17", "i15")),
    Mutant(change_overrides_recovery, ("i14", "i15")),
)


@pytest.mark.slow
@pytest.mark.parametrize("mutant", [pytest.param(m, marks=m.marks) for m in MUTANTS], ids=str)
def test_the_mutant_is_noticed(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.plant(monkeypatch)

    for seed in range(SEEDS_MAX):
        found = run_seed(seed).violations
        if any(finding.startswith(mutant.noticed_by) for finding in found):
            return

    pytest.fail(f"{mutant} was not noticed within {SEEDS_MAX} seeds")
