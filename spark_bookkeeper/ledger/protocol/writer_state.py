"""The writer of one ledger as a state machine: packaging, quorums, acknowledgement, the end.

Entries are numbered as they are appended and cut into *runs*; a run is packaged once, and every
bookie of the write set gets the same bytes. For E = WQ that is one section for all; a striped
ledger (E > WQ) gives each bookie the records of its stripe, named by the run they are cut from.

A run is complete when every one of its entries is stored by AQ of its write set. Runs are
acknowledged strictly in entry order: only the head of the queue, only when complete. The LAC that
travels in an entry is the writer's when its run was cut, so a follower learns of entry n with a
later one (or at the close).

Runs are cut by the writer's own clock: at once while nothing is unacknowledged, else when enough
bytes wait and few runs are out. No timer is involved.

A bookie that fails is sent nothing more. While every entry still has AQ bookies the writer goes
on; when not, it ends with NotEnoughBookies. FENCED or UNAUTHORIZED from anybody ends it at once:
somebody else decides about this ledger now. Nothing is ever acknowledged after an end.
Source: Apache ``LedgerHandle``, ``PendingAddOp``; docs/architecture.md.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from bookie_server.wire.codec import encode_section, encode_section_header
from bookie_server.wire.digest import Digest
from bookie_server.wire.messages import EncodedSection, Status
from bookie_server.wire.record import encode_records
from metadata.errors import (
    BookKeeperError,
    LedgerFencedError,
    NotEnoughBookiesError,
    UnauthorizedError,
)
from metadata.invariant import invariant
from metadata.model import NO_ENTRY_ID, LedgerMetadata
from spark_bookkeeper.ledger.protocol.events import (
    Acknowledge,
    Effect,
    FailPending,
    Release,
    SendSection,
)
from spark_bookkeeper.ledger.protocol.quorum import QuorumConfig

_PARTS_PER_RECORD = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLimits:
    """When a run is cut."""

    size_bytes_target: int = 64 * 1024
    """Enough to be worth a message while others are unacknowledged."""
    size_bytes_max: int = 1024 * 1024
    """A run ends before it exceeds this, unless one entry alone does."""
    runs_in_flight_max: int = 3
    """Unacknowledged runs beyond which adds only wait for company."""


@dataclass(slots=True)
class _Run:
    first_entry: int
    last_entry: int
    size_bytes: int
    """Payload bytes, held until every bookie answered or failed."""
    waiting: set[int]
    """Positions that have not answered."""
    stored: set[int] = field(default_factory=set)
    length: int = 0
    """The ledger's cumulative length with this run."""
    is_acknowledged: bool = False


class WriterState:
    """All methods are events, applied whole; they return what to do next, in order."""

    def __init__(
        self,
        ledger_id: int,
        metadata: LedgerMetadata,
        digest: Digest,
        master_key: bytes,
        limits: RunLimits,
    ) -> None:
        self.ledger_id = ledger_id
        self.ensemble = metadata.last_fragment.ensemble
        self.quorum = QuorumConfig.of(metadata)
        self.last_add_pushed = NO_ENTRY_ID
        self.last_add_confirmed = NO_ENTRY_ID
        self.length = 0
        """Payload bytes of all acknowledged entries."""
        self.error: BookKeeperError | None = None
        """Why this writer ended; set once."""
        self._digest = digest
        self._limits = limits
        self._header = encode_section_header(ledger_id, master_key, metadata.digest_type)
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._next_entry = 0
        self._length_pushed = 0
        self._runs: deque[_Run] = deque()
        """Runs with an answer outstanding or not yet acknowledged, oldest first."""
        self._unacknowledged_runs = 0
        self._failed: dict[int, Status] = {}

    # -- events -------------------------------------------------------------------------------

    def append(self, payloads: list[bytes]) -> list[Effect]:
        """Number these payloads and queue them; they become entries ``last_add_pushed + 1`` on."""
        invariant(self.error is None, "a writer that ended takes no entries")
        self.last_add_pushed += len(payloads)
        self._waiting.extend(payloads)
        self._waiting_bytes += sum(map(len, payloads))
        return self._cut_runs()

    def section_answered(self, position: int, first_entry: int, status: Status) -> list[Effect]:
        """A bookie answered for its part of the run that starts at ``first_entry``.

        Answers for runs no longer waited for are late or duplicate, and ignored.
        """
        run = self._run_at(first_entry)
        if run is None or position not in run.waiting:
            return []
        run.waiting.discard(position)
        effects: list[Effect] = []
        if status is Status.OK:
            run.stored.add(position)
        elif self.error is None:
            effects += self._bookie_failed(position, status)
        effects += self._acknowledge()
        effects += self._retire()
        if self.error is None:
            effects += self._cut_runs()
        return effects

    def end(self, error: BookKeeperError) -> list[Effect]:
        """Stop for good: nothing that is not acknowledged yet will be."""
        if self.error is not None:
            return []
        self.error = error
        released = self._waiting_bytes + sum(run.size_bytes for run in self._runs)
        self._waiting.clear()
        self._waiting_bytes = 0
        self._runs.clear()
        return [FailPending(error), Release(released)]

    @property
    def is_settled(self) -> bool:
        """Whether every appended entry is acknowledged."""
        return self.last_add_confirmed == self.last_add_pushed

    # -- cutting runs -------------------------------------------------------------------------

    def _cut_runs(self) -> list[Effect]:
        effects: list[Effect] = []
        while self._waiting and (
            self._unacknowledged_runs == 0
            or (
                self._waiting_bytes >= self._limits.size_bytes_target
                and self._unacknowledged_runs < self._limits.runs_in_flight_max
            )
        ):
            effects += self._send_run(self._take_payloads())
        return effects

    def _take_payloads(self) -> list[bytes]:
        taken: list[bytes] = []
        size = 0
        while self._waiting:
            size += len(self._waiting[0])
            if taken and size > self._limits.size_bytes_max:
                break
            taken.append(self._waiting.popleft())
        return taken

    def _send_run(self, payloads: list[bytes]) -> list[Effect]:
        first_entry, size_bytes = self._next_entry, sum(map(len, payloads))
        last_entry = first_entry + len(payloads) - 1
        parts = encode_records(
            self._digest,
            self.ledger_id,
            first_entry,
            payloads,
            last_add_confirmed=self.last_add_confirmed,
            length_before=self._length_pushed,
        )
        self._next_entry = last_entry + 1
        self._waiting_bytes -= size_bytes
        self._length_pushed += size_bytes
        sections = self._sections(parts, range(first_entry, self._next_entry))
        run = _Run(first_entry, last_entry, size_bytes, set(sections), length=self._length_pushed)
        self._runs.append(run)
        self._unacknowledged_runs += 1
        return [
            SendSection(position, self.ensemble[position], first_entry, section)
            for position, section in sections.items()
        ]

    def _sections(self, parts: list[bytes], entry_ids: range) -> dict[int, EncodedSection]:
        """The section of every usable position that stores part of the run."""
        usable = [p for p in range(self.quorum.ensemble_size) if p not in self._failed]
        if not self.quorum.is_striped:
            return dict.fromkeys(usable, self._section(parts, entry_ids[0], entry_ids[-1]))
        sections: dict[int, EncodedSection] = {}
        for position in usable:
            ids = [e for e in entry_ids if position in self.quorum.write_set(e)]
            if ids:
                starts = [(e - entry_ids.start) * _PARTS_PER_RECORD for e in ids]
                mine = [part for at in starts for part in parts[at : at + _PARTS_PER_RECORD]]
                sections[position] = self._section(mine, ids[0], ids[-1])
        return sections

    def _section(self, parts: list[bytes], first_entry: int, last_entry: int) -> EncodedSection:
        data = encode_section(self._header, parts)
        return EncodedSection(self.ledger_id, first_entry, last_entry, False, data)

    # -- quorums --------------------------------------------------------------------------------

    def _bookie_failed(self, position: int, status: Status) -> list[Effect]:
        if status is Status.FENCED:
            return self.end(LedgerFencedError(self.ledger_id))
        if status is Status.UNAUTHORIZED:
            return self.end(UnauthorizedError(self.ledger_id))
        self._failed[position] = status
        usable = set(range(self.quorum.ensemble_size)) - self._failed.keys()
        if not self.quorum.can_acknowledge(usable):
            return self.end(self._not_enough(usable))
        return []

    def _not_enough(self, usable: set[int]) -> NotEnoughBookiesError:
        failed = ",".join(
            f"{self.ensemble[position]}:{status.name}" for position, status in self._failed.items()
        )
        return NotEnoughBookiesError(
            self.quorum.ack_quorum,
            tuple(self.ensemble[position] for position in sorted(usable)),
            f"ledger {self.ledger_id} ends at entry {self.last_add_confirmed}; failed {failed}",
        )

    def _acknowledge(self) -> list[Effect]:
        confirmed = self.last_add_confirmed
        for run in self._runs:
            if run.is_acknowledged:
                continue
            if not self._is_complete(run):
                break
            invariant(run.first_entry == confirmed + 1, "runs are acknowledged in entry order")
            run.is_acknowledged = True
            self._unacknowledged_runs -= 1
            confirmed, self.length = run.last_entry, run.length
        if confirmed == self.last_add_confirmed:
            return []
        self.last_add_confirmed = confirmed
        return [Acknowledge(confirmed)]

    def _is_complete(self, run: _Run) -> bool:
        if not self.quorum.is_striped:
            return len(run.stored) >= self.quorum.ack_quorum
        kinds = min(run.last_entry - run.first_entry + 1, self.quorum.ensemble_size)
        return all(
            len(run.stored.intersection(self.quorum.write_set(run.first_entry + kind)))
            >= self.quorum.ack_quorum
            for kind in range(kinds)
        )

    def _retire(self) -> list[Effect]:
        """Forget runs everybody answered for; they retire in order, so the queue stays a queue."""
        released = 0
        while self._runs and self._runs[0].is_acknowledged and not self._runs[0].waiting:
            released += self._runs.popleft().size_bytes
        return [Release(released)] if released else []

    def _run_at(self, first_entry: int) -> _Run | None:
        for run in self._runs:
            if run.first_entry == first_entry:
                return run
        return None
