"""Verifying a ledger: read every replica of every entry and compare what they hold.

Ids, cumulative lengths and payloads must agree; LAC and digest may differ, since a recovery by
Apache's client packages an entry anew. A missing replica is reported, and need not be an error:
only an ack quorum of each write set must hold it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from bookie_server.wire.digest import digest_for
from bookie_server.wire.messages import ReadReply, ReadRequest, Status
from bookie_server.wire.record import RECORD_OVERHEAD, parse_header
from bookkeeper_metadata.model import Fragment, LedgerMetadata
from spark_bookkeeper.ledger.client import LedgerClient
from spark_bookkeeper.ledger.fetch import verified_runs
from spark_bookkeeper.ledger.protocol.quorum import QuorumConfig
from spark_bookkeeper.ledger.protocol.read_rules import DIGEST_MISMATCH

_WINDOW_ENTRIES = 256
"""Entries compared at a time."""

DIFFERENT = "DIFFERENT"
"""Reported for a replica whose copy verifies but differs from the other replicas'."""


@dataclass(frozen=True, slots=True)
class ReplicaDefect:
    """One replica of one entry that is not as it should be."""

    entry_id: int
    bookie_id: str
    what: str
    """A bookie's status, ``DIGEST_MISMATCH`` or ``DIFFERENT``."""


@dataclass(frozen=True, slots=True)
class EntryReport:
    """The result of comparing the replicas of consecutive entries."""

    first_entry: int
    last_entry: int
    replicas_checked: int
    defects: tuple[ReplicaDefect, ...]
    below_ack_quorum: tuple[int, ...]
    """Entries held by fewer than AQ replicas."""
    without_copy: tuple[int, ...]
    """Those of them of which no replica that answered has a good copy."""


async def verify_ledger(
    client: LedgerClient, ledger_id: int, *, password: bytes = b""
) -> AsyncIterator[EntryReport]:
    """Reports for all entries up to the LAC, in order, window by window, so callers can show progress.

    Raises:
        NoSuchLedgerError, UnauthorizedError, EntryUnreadableError: the ledger cannot be opened.
    """
    reader = await client.open_ledger(ledger_id, password=password)
    metadata, last_entry = reader.metadata, reader.last_add_confirmed
    first = 0
    while first <= last_entry:
        fragment = metadata.fragment_of(first)
        ends = [f.first_entry - 1 for f in metadata.fragments if f.first_entry > first]
        last = min(first + _WINDOW_ENTRIES - 1, last_entry, *ends)
        yield await _Window(client, ledger_id, metadata, fragment).verify(first, last)
        first = last + 1


class _Window:
    """Compares the replicas of consecutive entries of one fragment."""

    def __init__(
        self, client: LedgerClient, ledger_id: int, metadata: LedgerMetadata, fragment: Fragment
    ) -> None:
        self._cluster = client.cluster
        self._ledger_id = ledger_id
        self._fragment = fragment
        self._quorum = QuorumConfig.of(metadata)
        self._digest = digest_for(metadata.digest_type, metadata.password)

    async def verify(self, first_entry: int, last_entry: int) -> EntryReport:
        await self._cluster.prepare(self._fragment.ensemble)
        positions = range(self._quorum.ensemble_size)
        replicas = await asyncio.gather(
            *(self._read_all(position, first_entry, last_entry) for position in positions)
        )
        defects: list[ReplicaDefect] = []
        below: list[int] = []
        without: list[int] = []
        for entry_id in range(first_entry, last_entry + 1):
            reference: tuple[int, bytes] | None = None
            good = 0
            for position in self._quorum.write_set(entry_id):
                held = replicas[position][entry_id]
                if isinstance(held, str):
                    defects.append(self._defect(entry_id, position, held))
                # The first that verifies is the measure. Where two differ nothing here can say
                # which is right: what counts is that they do.
                elif reference is None or held == reference:
                    reference = held
                    good += 1
                else:
                    defects.append(self._defect(entry_id, position, DIFFERENT))
            if good < self._quorum.ack_quorum:
                below.append(entry_id)
            if not good:
                without.append(entry_id)
        count = (last_entry - first_entry + 1) * self._quorum.write_quorum
        return EntryReport(
            first_entry, last_entry, count, tuple(defects), tuple(below), tuple(without)
        )

    async def _read_all(
        self, position: int, first_entry: int, last_entry: int
    ) -> dict[int, tuple[int, bytes] | str]:
        """By entry id: (cumulative length, payload), or why this position did not return it."""
        found: dict[int, tuple[int, bytes] | str] = {}
        while first_entry <= last_entry:
            request = ReadRequest(
                ledger_id=self._ledger_id,
                first_entry=first_entry,
                last_entry=last_entry,
                stripe=self._quorum.stripe_of(position),
            )
            reply = await self._cluster.client(self._fragment.ensemble[position]).read(request)
            first_entry = self._take(reply, request, found)
        return found

    def _take(
        self, reply: ReadReply, request: ReadRequest, found: dict[int, tuple[int, bytes] | str]
    ) -> int:
        """Note what the reply says; returns the first entry still to be asked for."""
        good, bad = verified_runs(reply, request, self._digest)
        skip = RECORD_OVERHEAD + self._digest.size
        for run in good:
            for index, entry_id in enumerate(run.entry_ids):
                length = parse_header(run.data, run.offsets[index]).length
                found[entry_id] = length, bytes(run.record(index)[skip:])
        found.update(dict.fromkeys(bad, DIGEST_MISMATCH))
        resume = request.last_entry + 1
        for part in reply.missing:
            # Asked for again only if the reply got any further: else this would go on for ever.
            if part.status is Status.NOT_REACHED and part.first_entry > request.first_entry:
                resume = min(resume, part.first_entry)
            else:
                first = max(part.first_entry, request.first_entry)
                ids = range(first, min(part.last_entry, request.last_entry) + 1)
                found.update(dict.fromkeys(ids, part.status.name))
        for entry_id in range(request.first_entry, resume):
            # A bookie that said nothing about an id may or may not hold it.
            found.setdefault(entry_id, Status.UNKNOWN.name)
        return resume

    def _defect(self, entry_id: int, position: int, what: str) -> ReplicaDefect:
        return ReplicaDefect(entry_id, self._fragment.ensemble[position], what)
