"""Admission: what a bookie does with an add, a fence or an explicit LAC, decided without I/O.

An admitted add stays *pending* until its journal group is durable: a duplicate waits for that
group, a read of it waits (``Settle``), a failed group answers UNKNOWN and the bookie stops. The
first add or fence binds the ledger's master key. Once a fence is admitted no ordinary add is, not
even while the fence is still on its way to the disk; a repeated fence waits for the first one's
record, so no fencing request is answered before the fence is durable. A ledger in limbo takes no
ordinary add either; one that is suspected of having been deleted takes none at all, while the metadata
is asked about it, and a deleted one nothing for good. What needs more room than there is is refused last, as READ_ONLY, for a fenced
writer must learn of the fence; what is stored already needs none.

Fence check and admission happen in one ``handle`` call: there is no await between them for a
fence to slip through (Apache BOOKKEEPER-500, #2614). What is durable is asked of ``DurableState``;
this class holds only what is not durable yet, and forgets a ledger as soon as nothing is pending.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from bookie_server.core.effects import Compare, Effect, Persist, Remember, Reply, ReplyTo
from bookie_server.core.handle_state import LedgerHandleState
from bookie_server.core.records import (
    Add,
    Drop,
    ExplicitLac,
    Fence,
    JournalRecord,
    MasterKey,
    Replace,
    Tombstone,
)
from bookie_server.core.same_entries import conflicts_with_any, digest_size_of, without_ids_of
from bookie_server.core.space import Mode
from bookie_server.wire.digest import keyless_digest, same_key, size_of
from bookie_server.wire.messages import Section, Status
from bookie_server.wire.record import (
    RECORD_OVERHEAD,
    Run,
    headers_are_possible,
    is_possible_lac_packet,
    run_verifies,
    smallest_record,
)
from bookkeeper_metadata.foundation.invariant import invariant
from bookkeeper_metadata.model import NO_ENTRY_ID


class LedgerSet(Protocol):
    """Ids of ledgers."""

    def __contains__(self, ledger_id: int) -> bool: ...


class DurableState(Protocol):
    """What is durable by now; storage implements it from memory, without blocking."""

    @property
    def ledgers(self) -> Mapping[int, LedgerHandleState]: ...
    @property
    def tombstones(self) -> LedgerSet: ...
    def missing(self, run: Run) -> list[Run]: ...


@dataclass(slots=True)
class _Unsettled:
    """What is admitted for one ledger but not durable yet."""

    master_key: bytes | None = None
    fence_ticket: int | None = None
    runs: dict[int, list[tuple[int, int, Run]]] = field(default_factory=dict)
    """By ticket: (first entry, last entry, run)."""
    highest_entry: int = NO_ENTRY_ID
    """Of all runs admitted since nothing was pending."""
    last_ticket: int = 0
    waiting: dict[int, list[Reply | Compare]] = field(default_factory=dict)
    """By ticket: effects the shell carries out once that is durable."""

    def admit(self, ticket: int, runs: Iterable[Run]) -> None:
        """Note what is on its way with a new ticket."""
        self.last_ticket = ticket
        found = [(run.first_entry, run.last_entry, run) for run in runs]
        if found:
            self.runs[ticket] = found
            self.highest_entry = max(self.highest_entry, *(last for _, last, _ in found))

    def near(self, first_entry: int, last_entry: int) -> list[Run]:
        """The pending runs that may hold one of these ids."""
        # A writer's next run, for which nothing has to be looked through.
        if first_entry > self.highest_entry:
            return []
        return [
            run
            for runs in self.runs.values()
            for first, last, run in runs
            if first <= last_entry and first_entry <= last
        ]

    def wait(self, ticket: int, effect: Reply | Compare) -> None:
        """Keep an effect until that ticket is durable."""
        self.waiting.setdefault(ticket, []).append(effect)


class Admission:
    """The state machine; every method is one event, applied whole."""

    def __init__(
        self, durable: DurableState, mode: Callable[[], Mode] = lambda: Mode.WRITABLE
    ) -> None:
        """``mode`` says what there is room for."""
        self._durable = durable
        self._mode = mode
        self._unsettled: dict[int, _Unsettled] = {}
        self._ledger_of_ticket: dict[int, int] = {}
        self._ticket = 0
        self._suspects: frozenset[int] = frozenset()
        self._deletions: dict[int, tuple[tuple[int, int], ...]] = {}
        """By ticket: ranges of ledgers whose tombstones are on their way to the disk."""

    # -- requests ---------------------------------------------------------------------------

    def add(self, section: Section, to: ReplyTo, client: str = "") -> list[Effect]:
        """Admit the whole section of this client, or refuse the whole section."""
        if section.defect:
            return [Reply(to, Status.BAD_REQUEST)]
        # The order matters to the client: a wrong key is told before a fence, so that a stranger
        # learns nothing about the ledger, and the digests, which cost most, are checked last.
        refusal = self._refuse(section.ledger_id, section.master_key)
        if refusal is None and section.ledger_id in self._suspects:
            refusal = Status.LIMBO
        if refusal is None and not section.is_recovery:
            refusal = self._refuse_writer(section.ledger_id)
        if refusal is None and not _is_plausible(section):
            refusal = Status.BAD_REQUEST
        if refusal is not None:
            return [Reply(to, refusal)]
        pending = self._pending_near(
            section.ledger_id, section.run.first_entry, section.run.last_entry
        )
        digest_size = digest_size_of(section)
        # A writer that never had its answer sends the same bytes again. What is stored is not
        # journalled twice; what is left may be several pieces.
        stored_or_new = self._durable.missing(section.run)
        fresh = [part for run in stored_or_new for part in without_ids_of(run, pending)]
        if conflicts_with_any(section.run, pending, digest_size):
            return [Reply(to, Status.CONFLICT)]
        # Entries that are stored or pending already are OK only if their bytes are the same.
        is_all_new = len(fresh) == 1 and len(fresh[0]) == len(section.run)
        key = section.master_key if section.is_recovery else None
        compare = Compare(section.run, digest_size, to, key, client)
        answer = Reply(to, Status.OK) if is_all_new else compare
        if fresh:
            if self._mode() > (Mode.READ_ONLY if section.is_recovery else Mode.WRITABLE):
                return [Reply(to, Status.READ_ONLY)]
            records: list[JournalRecord] = [Add(run) for run in fresh]
            return [self._persist(section.ledger_id, section.master_key, records, answer)]
        return self._when_settled(section.ledger_id, answer)

    def replace(self, compare: Compare, damaged: list[Run]) -> list[Effect]:
        """Replace stored entries that cannot be read, the ``damaged`` part of a recovery add.

        Nothing else changes in between: where an entry of these is on its way already, as when two
        recoveries replace the same, the comparison is made again once that is durable. Digests were
        checked when the add came, but for HMAC's, which no bookie can check. Those are taken all the
        same: readers check them, and what nobody can read is not made worse.
        """
        invariant(compare.recovery_key is not None, "only a recovery replaces what is stored")
        key = compare.recovery_key or b""
        ledger_id = compare.run.ledger_id
        refusal = self._refuse(ledger_id, key)
        if refusal is None and ledger_id in self._suspects:
            refusal = Status.LIMBO
        if refusal is not None:
            return [Reply(compare.to, refusal)]
        if any(self._pending_near(ledger_id, r.first_entry, r.last_entry) for r in damaged):
            return self._when_settled(ledger_id, compare)
        if self._mode() > Mode.READ_ONLY:
            return [Reply(compare.to, Status.READ_ONLY)]
        records: list[JournalRecord] = [Replace(run) for run in damaged]
        return [self._persist(ledger_id, key, records, Reply(compare.to, Status.OK))]

    def fence(self, ledger_id: int, master_key: bytes, to: ReplyTo) -> list[Effect]:
        """Fence a ledger, even one this bookie has never seen; OK once the fence is durable."""
        refusal = self._refuse(ledger_id, master_key)
        if refusal is not None:
            return [Reply(to, refusal)]
        handle = self._durable.ledgers.get(ledger_id)
        if handle is not None and handle.is_fenced:
            return self._when_settled(ledger_id, Reply(to, Status.OK))
        state = self._unsettled.get(ledger_id)
        # A second fence must not be answered by the first one's being under way: it waits for the
        # same record to reach the disk.
        if state is not None and state.fence_ticket is not None:
            state.wait(state.fence_ticket, Reply(to, Status.OK))
            return []
        if self._mode() > Mode.FULL:
            return [Reply(to, Status.READ_ONLY)]
        effect = self._persist(ledger_id, master_key, [Fence(ledger_id)], Reply(to, Status.OK))
        self._unsettled[ledger_id].fence_ticket = effect.ticket
        return [effect]

    def set_explicit_lac(
        self, ledger_id: int, master_key: bytes, packet: bytes, to: ReplyTo
    ) -> list[Effect]:
        """Remember the writer's LAC, for fenced ledgers too: it is a hint, and needs no sync.

        It is journalled only along with the ledger's master key, while that is not durable yet.
        """
        refusal = self._refuse(ledger_id, master_key)
        if refusal is None and not is_possible_lac_packet(packet, ledger_id):
            refusal = Status.BAD_REQUEST
        if refusal is not None:
            return [Reply(to, refusal)]
        handle = self._durable.ledgers.get(ledger_id)
        if handle is not None and handle.master_key is not None:
            # Losing a hint costs a follower some delay, so it is not worth a sync.
            return [Remember(ledger_id, packet), Reply(to, Status.OK)]
        # A ledger that is not known here yet: its writer has its hint from other bookies.
        if self._mode() > Mode.WRITABLE:
            return [Reply(to, Status.READ_ONLY)]
        records: list[JournalRecord] = [ExplicitLac(ledger_id, packet)]
        return [self._persist(ledger_id, master_key, records, Reply(to, Status.OK))]

    def settle(self, ledger_id: int, to: ReplyTo) -> list[Effect]:
        """Answer OK once everything admitted for the ledger so far is durable."""
        return self._when_settled(ledger_id, Reply(to, Status.OK))

    # -- deletion -----------------------------------------------------------------------------

    def suspect(self, ledger_ids: Iterable[int]) -> list[int]:
        """Take no adds of these ledgers until the next call, and of all others.

        Returns those of which something was admitted before, and is not durable yet.
        """
        self._suspects = frozenset(ledger_ids)
        return [ledger_id for ledger_id in self._unsettled if ledger_id in self._suspects]

    @property
    def unsettled_ledgers(self) -> Collection[int]:
        """The ledgers of which something is admitted and not durable yet."""
        return self._unsettled.keys()

    def delete(self, ranges: Sequence[tuple[int, int]], to: ReplyTo) -> list[Effect]:
        """Delete the ledgers of these ranges for good; OK once that is durable.

        Whatever the mode: it is what makes room. Whether there is any for it the caller has asked.
        """
        self._ticket += 1
        self._deletions[self._ticket] = tuple(ranges)
        records = tuple(Tombstone(first, last) for first, last in ranges)
        return [Persist(self._ticket, ranges[0][0], records, (Reply(to, Status.OK),))]

    def drop(self, ledger_id: int, to: ReplyTo) -> list[Effect]:
        """Forget what is stored of a suspected ledger, and fence it; OK once that is durable.

        BUSY: not all of it is at rest.
        """
        invariant(ledger_id in self._suspects, "no add comes between the decision and the drop")
        if ledger_id in self._unsettled:
            return [Reply(to, Status.BUSY)]
        self._ticket += 1
        self._ledger_of_ticket[self._ticket] = ledger_id
        self._unsettled[ledger_id] = _Unsettled(fence_ticket=self._ticket, last_ticket=self._ticket)
        return [Persist(self._ticket, ledger_id, (Drop(ledger_id),), (Reply(to, Status.OK),))]

    # -- what became of a Persist -------------------------------------------------------------

    def on_durable(self, ticket: int) -> list[Effect]:
        """The group with ``ticket`` is synced and applied: release the effects that waited for it."""
        self._deletions.pop(ticket, None)
        ledger_id = self._ledger_of_ticket.get(ticket)
        if ledger_id is None:
            return []
        state = self._unsettled[ledger_id]
        if state.fence_ticket == ticket:
            handle = self._durable.ledgers.get(ledger_id)
            is_kept = handle is not None and handle.is_fenced
            invariant(
                is_kept or ledger_id in self._durable.tombstones, "a durable fence has been applied"
            )
            state.fence_ticket = None
        released: list[Effect] = [*self._take_waiting(ticket, state)]
        # Later tickets of the ledger may still be on their way to the disk; once the last one is
        # durable, ``DurableState`` knows all there is to know.
        if not state.runs and not state.waiting and state.last_ticket not in self._ledger_of_ticket:
            del self._unsettled[ledger_id]
        return released

    def on_failed(self, ticket: int) -> list[Effect]:
        """The group was not synced: no client may be answered OK. The bookie is about to stop."""
        ledger_id = self._ledger_of_ticket.get(ticket)
        if ledger_id is None:
            return []
        # The state stays, a fence under way included: what the disk holds is not known any more.
        waited = self._take_waiting(ticket, self._unsettled[ledger_id])
        return [Reply(effect.to, Status.UNKNOWN) for effect in waited]

    # -- questions ----------------------------------------------------------------------------

    def is_pending(self, ledger_id: int, first_entry: int, last_entry: int) -> bool:
        """Whether an admitted add of these ids is not durable yet."""
        return bool(self._pending_near(ledger_id, first_entry, last_entry))

    @property
    def pending_count(self) -> int:
        """Persists whose outcome is not known yet."""
        return len(self._ledger_of_ticket) + len(self._deletions)

    # -- inside -------------------------------------------------------------------------------

    def _take_waiting(self, ticket: int, state: _Unsettled) -> list[Reply | Compare]:
        """Forget a ticket and its run; return the effects that waited for it."""
        del self._ledger_of_ticket[ticket]
        state.runs.pop(ticket, None)
        # A ledger has one journal, whose groups become durable in order: nobody waits for less.
        return state.waiting.pop(ticket, [])

    def _refuse(self, ledger_id: int, master_key: bytes) -> Status | None:
        """The status that refuses any request with this key; ``None`` if there is none."""
        if ledger_id in self._durable.tombstones or self._is_being_deleted(ledger_id):
            # A late add must never create a deleted ledger anew (Apache #4462).
            return Status.DELETED
        # A key is bound from its admission on, not only once it is durable.
        state = self._unsettled.get(ledger_id)
        bound = state.master_key if state is not None else None
        if bound is None and (handle := self._durable.ledgers.get(ledger_id)) is not None:
            bound = handle.master_key
        is_another = bound is not None and not same_key(bound, master_key)
        return Status.UNAUTHORIZED if is_another else None

    def _is_being_deleted(self, ledger_id: int) -> bool:
        return any(
            first <= ledger_id <= last
            for ranges in self._deletions.values()
            for first, last in ranges
        )

    def _refuse_writer(self, ledger_id: int) -> Status | None:
        """The status that refuses the adds of the ledger's writer, but not recovery's."""
        if self._is_fenced(ledger_id):
            return Status.FENCED
        handle = self._durable.ledgers.get(ledger_id)
        # A fence may be among what was lost. FENCED would say that there was one, and end a writer
        # that nobody has fenced: it loses this bookie only.
        return Status.LIMBO if handle is not None and handle.is_limbo else None

    def _pending_near(self, ledger_id: int, first_entry: int, last_entry: int) -> list[Run]:
        state = self._unsettled.get(ledger_id)
        return state.near(first_entry, last_entry) if state is not None else []

    def _is_fenced(self, ledger_id: int) -> bool:
        state = self._unsettled.get(ledger_id)
        if state is not None and state.fence_ticket is not None:
            return True
        handle = self._durable.ledgers.get(ledger_id)
        return handle is not None and handle.is_fenced

    def _persist(
        self,
        ledger_id: int,
        master_key: bytes,
        records: list[JournalRecord],
        answer: Reply | Compare,
    ) -> Persist:
        state = self._unsettled.setdefault(ledger_id, _Unsettled())
        handle = self._durable.ledgers.get(ledger_id)
        if state.master_key is None and (handle is None or handle.master_key is None):
            state.master_key = master_key
            # In the same group, in front: there is no moment at which the disk has entries of a
            # ledger that anybody could still bind a key to.
            records = [MasterKey(ledger_id, master_key), *records]
        self._ticket += 1
        self._ledger_of_ticket[self._ticket] = ledger_id
        runs = [record.run for record in records if isinstance(record, Add | Replace)]
        state.admit(self._ticket, runs)
        size = sum([run.size_bytes for run in runs])
        return Persist(self._ticket, ledger_id, tuple(records), (answer,), size)

    def _when_settled(self, ledger_id: int, answer: Reply | Compare) -> list[Effect]:
        state = self._unsettled.get(ledger_id)
        if state is None:
            return [answer]
        state.wait(state.last_ticket, answer)
        return []


def _is_plausible(section: Section) -> bool:
    """Whether each record matches its digest, where a bookie can check it, and the LAC is possible.

    A writer cannot know an entry confirmed before it is stored. Apache's re-replication, whose adds
    are recovery's, packages entries anew with the LAC of the whole ledger.
    """
    run, digest = section.run, keyless_digest(section.digest_type)
    if not headers_are_possible(run, may_know_itself=section.is_recovery):
        return False
    if digest is None:
        return smallest_record(run) >= RECORD_OVERHEAD + (size_of(section.digest_type) or 0)
    return run_verifies(run, digest)
