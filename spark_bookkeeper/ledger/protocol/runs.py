"""Runs: appended payloads numbered, packaged once, and kept until every bookie answered for them.

A run is what one message carries. Every bookie of the write set gets the same bytes, also again
after an ensemble change. For E = WQ that is one section for all positions; a striped ledger
(E > WQ) gives each position the records of its stripe, named by the run they are cut from. The LAC
in an entry is the writer's when its run was cut, so a follower learns of entry n with a later one.

Runs are cut by the writer's own clock: at once while nothing is unacknowledged, else when enough
bytes wait and few runs are out. No timer is involved (docs/performance.md).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from bookie_server.wire.add_frames import encode_section
from bookie_server.wire.digest import Digest
from bookie_server.wire.frame_limits import FrameLimits
from bookie_server.wire.limits import RUN_ENTRIES_MAX
from bookie_server.wire.messages import EncodedSection
from bookie_server.wire.packaging import PARTS_PER_RECORD, encode_records
from spark_bookkeeper.ledger.protocol.quorum import QuorumConfig


@dataclass(slots=True)
class PendingRun:
    """Consecutive entries packaged together, and the positions that have stored them."""

    first_entry: int
    last_entry: int
    size_bytes: int
    """Payload bytes, held until every bookie asked has answered."""
    length: int
    """The ledger's cumulative length with this run."""
    last_add_confirmed: int
    """The LAC its entries carry."""
    sections: dict[int, EncodedSection]
    """What each position that stores part of the run gets."""
    waiting: set[int] = field(default_factory=set)
    """Positions asked that have not answered."""
    stored: set[int] = field(default_factory=set)
    is_acknowledged: bool = False


class RunCutter:
    """Payloads in, runs out, in entry order."""

    def __init__(
        self,
        ledger_id: int,
        quorum: QuorumConfig,
        digest: Digest,
        *,
        section_header: bytes,
        limits: FrameLimits,
    ) -> None:
        self._ledger_id = ledger_id
        self._quorum = quorum
        self._digest = digest
        self._section_header = section_header
        self._limits = limits
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._next_entry = 0
        self._length = 0
        self.is_prompt = False
        """Whether runs are acknowledged soon after they were cut, as its user says."""

    def push(self, payloads: list[bytes]) -> None:
        """Queue payloads; they become the next entries in this order."""
        self._waiting.extend(payloads)
        self._waiting_bytes += sum(map(len, payloads))

    def clear(self) -> int:
        """Forget what is not cut yet; returns its payload bytes."""
        forgotten, self._waiting_bytes = self._waiting_bytes, 0
        self._waiting.clear()
        return forgotten

    def cut(self, unacknowledged_runs: int, last_add_confirmed: int) -> PendingRun | None:
        """The next run, if one is due."""
        if not self._waiting:
            return None
        # A lone append never waits for company. Under load the answers of earlier runs are the
        # clock: what has collected until then goes out together.
        runs_max = self._limits.in_flight_at_most(
            self._waiting_bytes, len(self._waiting[0]), is_prompt=self.is_prompt
        )
        if unacknowledged_runs >= runs_max:
            return None
        return self._package(self._take(), last_add_confirmed)

    def _take(self) -> list[bytes]:
        if (
            self._waiting_bytes <= self._limits.size_bytes_max
            and len(self._waiting) <= RUN_ENTRIES_MAX
        ):
            everything = list(self._waiting)
            self._waiting.clear()
            return everything
        taken: list[bytes] = []
        size = 0
        while self._waiting:
            size += len(self._waiting[0])
            # The first payload is always taken, however large: the limit bounds runs, not entries.
            if taken and size > self._limits.size_bytes_max:
                break
            # Of payloads of no or few bytes: a bookie takes no more in a section, nor in a frame.
            if len(taken) == RUN_ENTRIES_MAX:
                break
            taken.append(self._waiting.popleft())
        return taken

    def _package(self, payloads: list[bytes], last_add_confirmed: int) -> PendingRun:
        first_entry, size_bytes = self._next_entry, sum(map(len, payloads))
        # The digest is computed here, once; every bookie, and the journal and entry log of each,
        # stores exactly these bytes.
        parts = encode_records(
            self._digest,
            self._ledger_id,
            first_entry,
            payloads,
            last_add_confirmed=last_add_confirmed,
            length_before=self._length,
        )
        self._next_entry += len(payloads)
        self._waiting_bytes -= size_bytes
        self._length += size_bytes
        sections = self._sections(parts, range(first_entry, self._next_entry))
        return PendingRun(
            first_entry,
            self._next_entry - 1,
            size_bytes,
            self._length,
            last_add_confirmed,
            sections,
        )

    def _sections(self, parts: list[bytes], entry_ids: range) -> dict[int, EncodedSection]:
        positions = range(self._quorum.ensemble_size)
        if not self._quorum.is_striped:
            # One object for all positions: nothing is copied per bookie.
            return dict.fromkeys(positions, self._section(parts, entry_ids[0], entry_ids[-1]))
        sections: dict[int, EncodedSection] = {}
        for position in positions:
            ids = [e for e in entry_ids if position in self._quorum.write_set(e)]
            if ids:
                starts = [(e - entry_ids.start) * PARTS_PER_RECORD for e in ids]
                mine = [part for at in starts for part in parts[at : at + PARTS_PER_RECORD]]
                sections[position] = self._section(mine, ids[0], ids[-1])
        return sections

    def _section(self, parts: list[bytes], first_entry: int, last_entry: int) -> EncodedSection:
        data = encode_section(self._section_header, parts)
        return EncodedSection(self._ledger_id, first_entry, last_entry, False, data)
