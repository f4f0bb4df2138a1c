"""Admission: what a bookie does with an add, a fence or an explicit LAC, decided without I/O.

An admitted add stays *pending* until its journal group is durable: a duplicate waits for that
group, a read of it waits (``Settle``), a failed group answers UNKNOWN and the bookie stops. The
first add or fence binds the ledger's master key. Once a fence is admitted no ordinary add is, not
even while the fence is still on its way to the disk; a repeated fence waits for the first one's
record, so no fencing request is answered before the fence is durable.

Fence check and admission happen in one ``handle`` call: there is no await between them for a
fence to slip through (Apache BOOKKEEPER-500, #2614). What is durable is asked of ``DurableState``;
this class holds only what is not durable yet, and forgets a ledger as soon as nothing is pending.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from bookie_server.core.effects import Compare, Effect, Persist, Remember, Reply, ReplyTo
from bookie_server.core.records import Add, ExplicitLac, Fence, JournalRecord, MasterKey
from bookie_server.wire.digest import keyless_digest
from bookie_server.wire.messages import Section, Status
from bookie_server.wire.record import (
    RECORD_OVERHEAD,
    Run,
    is_possible_lac_packet,
    parse_header,
    run_verifies,
)
from bookkeeper_metadata.foundation.invariant import invariant


class LedgerHandleView(Protocol):
    """What is durably known of one ledger."""

    @property
    def master_key(self) -> bytes | None: ...
    @property
    def is_fenced(self) -> bool: ...


class LedgerSet(Protocol):
    """Ids of ledgers."""

    def __contains__(self, ledger_id: int) -> bool: ...


class DurableState(Protocol):
    """What survived the disk so far; storage implements it from memory, without blocking."""

    @property
    def ledgers(self) -> Mapping[int, LedgerHandleView]: ...
    @property
    def tombstones(self) -> LedgerSet: ...
    def missing(self, run: Run) -> list[Run]: ...


@dataclass(slots=True)
class _Unsettled:
    """What is admitted for one ledger but not durable yet."""

    master_key: bytes | None = None
    fence_ticket: int | None = None
    runs: list[tuple[int, Run]] = field(default_factory=list)
    """(ticket, run) in order of admission."""
    last_ticket: int = 0
    waiting: list[tuple[int, Reply | Compare]] = field(default_factory=list)
    """(ticket, effect): to be done once that ticket is durable."""


class Admission:
    """The state machine; every method is one event, applied whole."""

    def __init__(self, durable: DurableState) -> None:
        self._durable = durable
        self._unsettled: dict[int, _Unsettled] = {}
        self._ledger_of_ticket: dict[int, int] = {}
        self._ticket = 0

    # -- requests ---------------------------------------------------------------------------

    def add(self, section: Section, to: ReplyTo) -> list[Effect]:
        """Admit the section as a whole, or refuse it as a whole."""
        refusal = self._refuse(section.ledger_id, section.master_key)
        if refusal is None and not section.is_recovery and self._is_fenced(section.ledger_id):
            refusal = Status.FENCED
        if refusal is None and not _is_plausible(section):
            refusal = Status.BAD_REQUEST
        if refusal is not None:
            return [Reply(to, refusal)]
        pending = self._pending_runs(section.ledger_id)
        digest = keyless_digest(section.digest_type)
        digest_size = 20 if digest is None else digest.size
        stored_or_new = self._durable.missing(section.run)
        fresh = [part for run in stored_or_new for part in _not_pending(run, pending)]
        if _conflicts_with_pending(section.run, pending, digest_size):
            return [Reply(to, Status.CONFLICT)]
        is_all_new = len(fresh) == 1 and len(fresh[0]) == len(section.run)
        answer = Reply(to, Status.OK) if is_all_new else Compare(section.run, digest_size, to)
        if fresh:
            records: list[JournalRecord] = [Add(run) for run in fresh]
            return [self._persist(section.ledger_id, section.master_key, records, answer)]
        return self._when_settled(section.ledger_id, answer)

    def fence(self, ledger_id: int, master_key: bytes, to: ReplyTo) -> list[Effect]:
        """Fence, also a ledger never seen before; OK once that is durable."""
        refusal = self._refuse(ledger_id, master_key)
        if refusal is not None:
            return [Reply(to, refusal)]
        handle = self._durable.ledgers.get(ledger_id)
        if handle is not None and handle.is_fenced:
            return self._when_settled(ledger_id, Reply(to, Status.OK))
        state = self._unsettled.get(ledger_id)
        if state is not None and state.fence_ticket is not None:
            state.waiting.append((state.fence_ticket, Reply(to, Status.OK)))
            return []
        effect = self._persist(ledger_id, master_key, [Fence(ledger_id)], Reply(to, Status.OK))
        self._unsettled[ledger_id].fence_ticket = effect.ticket
        return [effect]

    def set_explicit_lac(
        self, ledger_id: int, master_key: bytes, packet: bytes, to: ReplyTo
    ) -> list[Effect]:
        """Remember the writer's LAC. A hint: answered at once, fenced ledgers take it too.

        Only where the ledger's master key is not durable yet is there something to journal.
        """
        refusal = self._refuse(ledger_id, master_key)
        if refusal is None and not is_possible_lac_packet(packet, ledger_id):
            refusal = Status.BAD_REQUEST
        if refusal is not None:
            return [Reply(to, refusal)]
        handle = self._durable.ledgers.get(ledger_id)
        if handle is not None and handle.master_key is not None:
            return [Remember(ledger_id, packet), Reply(to, Status.OK)]
        records: list[JournalRecord] = [ExplicitLac(ledger_id, packet)]
        return [self._persist(ledger_id, master_key, records, Reply(to, Status.OK))]

    def settle(self, ledger_id: int, to: ReplyTo) -> list[Effect]:
        """OK once everything admitted for the ledger so far is durable."""
        return self._when_settled(ledger_id, Reply(to, Status.OK))

    # -- what became of a Persist -------------------------------------------------------------

    def on_durable(self, ticket: int) -> list[Effect]:
        """The group that carried ``ticket`` is synced and applied: release who waited for it."""
        ledger_id = self._ledger_of_ticket.pop(ticket, None)
        if ledger_id is None:
            return []
        state = self._unsettled[ledger_id]
        state.runs = [item for item in state.runs if item[0] != ticket]
        if state.fence_ticket == ticket:
            handle = self._durable.ledgers.get(ledger_id)
            invariant(handle is not None and handle.is_fenced, "a durable fence has been applied")
            state.fence_ticket = None
        released: list[Effect] = [effect for at, effect in state.waiting if at <= ticket]
        state.waiting = [item for item in state.waiting if item[0] > ticket]
        if not state.runs and not state.waiting and state.last_ticket not in self._ledger_of_ticket:
            del self._unsettled[ledger_id]
        return released

    def on_failed(self, ticket: int) -> list[Effect]:
        """The group was not synced: nobody may learn OK. The bookie is about to stop."""
        ledger_id = self._ledger_of_ticket.pop(ticket, None)
        if ledger_id is None:
            return []
        state = self._unsettled[ledger_id]
        state.runs = [item for item in state.runs if item[0] != ticket]
        released: list[Effect] = [
            Reply(effect.to, Status.UNKNOWN) for at, effect in state.waiting if at <= ticket
        ]
        state.waiting = [item for item in state.waiting if item[0] > ticket]
        return released

    # -- questions ----------------------------------------------------------------------------

    def is_pending(self, ledger_id: int, first_entry: int, last_entry: int) -> bool:
        """Whether an admitted add of these ids is not durable yet."""
        return any(
            run.first_entry <= last_entry and first_entry <= run.last_entry
            for _, run in self._pending_runs(ledger_id)
        )

    @property
    def pending_count(self) -> int:
        """Persists whose outcome is not known yet."""
        return len(self._ledger_of_ticket)

    # -- inside -------------------------------------------------------------------------------

    def _refuse(self, ledger_id: int, master_key: bytes) -> Status | None:
        if ledger_id in self._durable.tombstones:
            return (
                Status.FENCED
            )  # a deleted ledger is never re-created by a late add (Apache #4462)
        state = self._unsettled.get(ledger_id)
        bound = state.master_key if state is not None else None
        if bound is None:
            handle = self._durable.ledgers.get(ledger_id)
            bound = handle.master_key if handle is not None else None
        return Status.UNAUTHORIZED if bound is not None and bound != master_key else None

    def _pending_runs(self, ledger_id: int) -> list[tuple[int, Run]]:
        state = self._unsettled.get(ledger_id)
        return state.runs if state is not None else []

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
            records = [MasterKey(ledger_id, master_key), *records]
        self._ticket += 1
        state.last_ticket = self._ticket
        self._ledger_of_ticket[self._ticket] = ledger_id
        state.runs.extend(
            (self._ticket, record.run) for record in records if isinstance(record, Add)
        )
        return Persist(self._ticket, ledger_id, tuple(records), (answer,))

    def _when_settled(self, ledger_id: int, answer: Reply | Compare) -> list[Effect]:
        state = self._unsettled.get(ledger_id)
        if state is None:
            return [answer]
        state.waiting.append((state.last_ticket, answer))
        return []


def _is_plausible(section: Section) -> bool:
    """Every record matches its digest, as far as a bookie can tell, and claims a possible LAC."""
    digest = keyless_digest(section.digest_type)
    if digest is not None and not run_verifies(section.run, digest):
        return False
    header = parse_header(section.run.data, section.run.offsets[-1])
    return -1 <= header.last_add_confirmed < header.entry_id and header.length >= 0


def _not_pending(run: Run, pending: list[tuple[int, Run]]) -> list[Run]:
    """The parts of ``run`` whose ids are not among the pending runs."""
    if all(run.first_entry > other.last_entry for _, other in pending):
        return [run]  # a writer's next run
    parts: list[Run] = []
    start = 0
    taken = [any(_holds(other, entry_id) for _, other in pending) for entry_id in run.entry_ids]
    for index, is_taken in enumerate([*taken, True]):
        if is_taken:
            if start < index:
                parts.append(run.slice(start, index))
            start = index + 1
    return parts


def _holds(run: Run, entry_id: int) -> bool:
    at = bisect_left(run.entry_ids, entry_id)
    return at < len(run.entry_ids) and run.entry_ids[at] == entry_id


def _conflicts_with_pending(run: Run, pending: list[tuple[int, Run]], digest_size: int) -> bool:
    """Whether a pending run holds an id of ``run`` with another length or payload."""
    for _, other in pending:
        common = other.between(run.first_entry, run.last_entry)
        if common is not None and not same_entries(run, common, digest_size):
            return True
    return False


def same_entries(run: Run, stored: Run, digest_size: int) -> bool:
    """Whether the ids both hold have equal lengths and payloads.

    LAC and digest may differ: Apache's recovery packages an entry anew (docs/architecture.md).
    """
    for index, entry_id in enumerate(stored.entry_ids):
        at = bisect_left(run.entry_ids, entry_id)
        if at == len(run.entry_ids) or run.entry_ids[at] != entry_id:
            continue
        if _comparable(run, at, digest_size) != _comparable(stored, index, digest_size):
            return False
    return True


def _comparable(run: Run, index: int, digest_size: int) -> tuple[int, bytes]:
    """(cumulative length, payload) of a record: what makes two replicas the same entry."""
    header = parse_header(run.data, run.offsets[index])
    payload = bytes(run.record(index)[RECORD_OVERHEAD + digest_size :])
    return header.length, payload
