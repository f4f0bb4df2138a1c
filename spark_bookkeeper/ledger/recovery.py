"""Recovery: take over a ledger its writer left open, and close it at its last entry.

Read top to bottom like the protocol page:

1. CAS the metadata to IN_RECOVERY (a ledger already there is joined, its version untouched).
2. Fence: a fencing LAC read of the last ensemble, until no ack quorum is left unfenced.
3. Read forward from the LAC, fencing with every read, always from the ensemble in the metadata
   when the recovery began, until an entry surely never existed.
4. Write back what was found, the exact bytes read, to an ack quorum.
5. CAS to CLOSED. Until here the fragments in the metadata are never touched, so any number of
   recoverers read the same ensemble and come to the same end; whoever loses the CAS adopts.

Nothing is guessed: an entry nobody can decide about aborts the recovery, and the ledger stays
IN_RECOVERY for a later attempt. Source: Apache ``LedgerRecoveryOp``; BookKeeperProtocol.tla.
"""

from __future__ import annotations

import asyncio

from bookie_server.wire.codec import encode_section, encode_section_header
from bookie_server.wire.digest import Digest, digest_for, master_key
from bookie_server.wire.messages import (
    EncodedSection,
    IdRange,
    ReadRequest,
    Status,
    Stripe,
)
from bookie_server.wire.record import Run, parse_header
from metadata.errors import BookKeeperError, LedgerRecoveryError, UnauthorizedError
from metadata.invariant import invariant
from metadata.model import NO_ENTRY_ID, LedgerMetadata, Versioned
from metadata.update import Stop
from spark_bookkeeper.ledger.cluster import Cluster
from spark_bookkeeper.ledger.fetch import FragmentFetcher, verified_runs
from spark_bookkeeper.ledger.last_confirmed import read_last_confirmed
from spark_bookkeeper.ledger.protocol.quorum import QuorumConfig
from spark_bookkeeper.ledger.protocol.recovery_rules import (
    EntryVerdict,
    Verdict,
    first_entry_to_recover,
)


async def recover_ledger(cluster: Cluster, ledger_id: int, password: bytes) -> Versioned:
    """Fence, recover and close; returns the closed metadata. A closed ledger is returned as is.

    Raises:
        LedgerRecoveryError: something could not be decided or written; try again later.
        UnauthorizedError: the password is not the ledger's.
    """
    versioned = await cluster.ledgers.read(ledger_id)
    if versioned.metadata.password != password:
        raise UnauthorizedError(ledger_id)
    if versioned.metadata.is_closed:
        return versioned
    versioned = await cluster.update(ledger_id, _mark_in_recovery, versioned)
    if versioned.metadata.is_closed:
        return versioned
    last_entry, length = await _Recovery(cluster, ledger_id, versioned.metadata).run()

    def close(metadata: LedgerMetadata) -> LedgerMetadata | Stop[BookKeeperError]:
        if metadata.is_closed:
            return metadata  # another recoverer, or the writer, was first: theirs is the end
        if metadata.fragments != versioned.metadata.fragments:
            # A writer changed the ensemble before our mark reached it: what we read is not the
            # whole story. Nothing was committed; the next attempt starts from the new fragments.
            return Stop(LedgerRecoveryError(ledger_id, "the ensemble changed while recovering"))
        return metadata.closed(last_entry, length)

    return await cluster.update(ledger_id, close, versioned)


def _mark_in_recovery(metadata: LedgerMetadata) -> LedgerMetadata | Stop[BookKeeperError]:
    return metadata if metadata.is_closed else metadata.in_recovery()


class _Recovery:
    """One attempt, on the metadata as it stood once IN_RECOVERY."""

    def __init__(self, cluster: Cluster, ledger_id: int, metadata: LedgerMetadata) -> None:
        self._cluster = cluster
        self._ledger_id = ledger_id
        self._metadata = metadata
        self._fragment = metadata.last_fragment
        self._quorum = QuorumConfig.of(metadata)
        self._digest: Digest = digest_for(metadata.digest_type, metadata.password)
        self._key = master_key(metadata.password)

    async def run(self) -> tuple[int, int]:
        """``(last entry, length)`` of the ledger; everything up to it is at its ack quorum."""
        confirmed = await read_last_confirmed(
            self._cluster, self._ledger_id, self._metadata, is_fencing=True
        )
        entry_id = first_entry_to_recover(confirmed, self._fragment.first_entry)
        last_entry = entry_id - 1
        length: int | None = None
        while True:
            window = await self._read_window(entry_id)
            await asyncio.gather(*(self._write_back(entry) for entry in window.entries))
            if window.entries:
                newest = window.entries[-1]
                length = parse_header(newest.data, newest.offsets[0]).length
                last_entry = newest.last_entry
            if window.is_last:
                break
            entry_id = last_entry + 1
        if length is None:
            length = await self._length_up_to(last_entry)
        return last_entry, length

    async def _read_window(self, first_entry: int) -> _Window:
        """Decide entries from ``first_entry`` on, until one never existed or the window ends.

        All positions are asked at once, in one request each.
        """
        last_entry = first_entry + self._cluster.settings.recovery_window_entries - 1
        positions = range(self._quorum.ensemble_size)
        replies = await asyncio.gather(
            *(self._read_from(position, first_entry, last_entry) for position in positions)
        )
        entries: list[Run] = []
        for entry_id in range(first_entry, last_entry + 1):
            verdict = EntryVerdict(self._quorum, entry_id)
            is_cut_off = False
            copy: Run | None = None
            for position in self._quorum.write_set(entry_id):
                found, status = replies[position].look_up(entry_id)
                is_cut_off = is_cut_off or status is Status.NOT_REACHED
                if found is not None:
                    copy = found
                    verdict.copy(position)
                else:
                    verdict.no_copy(position, status)
            if verdict.verdict is Verdict.NEVER_EXISTED:
                return _Window(entries, is_last=True)
            if copy is None:
                if is_cut_off and entries:
                    return _Window(entries, is_last=False)
                raise LedgerRecoveryError(
                    self._ledger_id,
                    f"entry {entry_id} is neither readable nor provably absent",
                )
            entries.append(copy)
        return _Window(entries, is_last=False)

    async def _read_from(self, position: int, first_entry: int, last_entry: int) -> _Answers:
        quorum = self._quorum
        stripe = Stripe(quorum.ensemble_size, quorum.write_quorum, position)
        request = ReadRequest(
            ledger_id=self._ledger_id,
            first_entry=first_entry,
            last_entry=last_entry,
            stripe=stripe if quorum.is_striped else None,
            is_fencing=True,
            master_key=self._key,
            size_bytes_max=self._cluster.settings.read_size_bytes,
        )
        reply = await self._cluster.client(self._fragment.ensemble[position]).read(request)
        if any(part.status is Status.UNAUTHORIZED for part in reply.missing):
            raise UnauthorizedError(self._ledger_id)
        good, bad = verified_runs(reply, request, self._digest)
        copies = {
            entry_id: run.slice(index, index + 1)
            for run in good
            for index, entry_id in enumerate(run.entry_ids)
        }
        return _Answers(copies, frozenset(bad), reply.missing)

    async def _write_back(self, entry: Run) -> None:
        """Store one entry, byte for byte as read, on an ack quorum of its write set."""
        header = encode_section_header(
            self._ledger_id, self._key, self._metadata.digest_type, is_recovery=True
        )
        entry_id = entry.first_entry
        data = encode_section(header, [entry.data])
        section = EncodedSection(self._ledger_id, entry_id, entry_id, True, data)
        loop = asyncio.get_running_loop()
        answers: list[asyncio.Future[Status]] = []
        for position in self._quorum.write_set(entry_id):
            answer: asyncio.Future[Status] = loop.create_future()
            answers.append(answer)
            client = self._cluster.client(self._fragment.ensemble[position])
            client.write(section, lambda s, a=answer: a.done() or a.set_result(s))  # type: ignore[misc]
        stored = 0
        for next_answer in asyncio.as_completed(answers):
            stored += await next_answer is Status.OK
            if stored == self._quorum.ack_quorum:
                return
        raise LedgerRecoveryError(
            self._ledger_id, f"entry {entry_id} could be written back to {stored} bookies only"
        )

    async def _length_up_to(self, last_entry: int) -> int:
        """The cumulative length at an entry that needed no recovery: its own header says it."""
        if last_entry == NO_ENTRY_ID:
            return 0
        fetcher = FragmentFetcher(self._cluster, self._ledger_id, self._quorum, self._digest)
        fragment = self._metadata.fragment_of(last_entry)
        (run,) = await fetcher.fetch(fragment, last_entry, last_entry, turn=0)
        return parse_header(run.data, run.offsets[0]).length


class _Window:
    """Consecutive entries that exist, and whether the ledger ends behind them."""

    def __init__(self, entries: list[Run], *, is_last: bool) -> None:
        invariant(is_last or bool(entries), "a window either ends the ledger or makes progress")
        self.entries = entries
        self.is_last = is_last


class _Answers:
    """One bookie's answers for a window."""

    def __init__(
        self, copies: dict[int, Run], damaged: frozenset[int], missing: tuple[IdRange, ...]
    ) -> None:
        self._copies = copies
        self._damaged = damaged
        self._missing = missing

    def look_up(self, entry_id: int) -> tuple[Run | None, Status]:
        """The verified copy, or what the bookie said instead; silence is UNKNOWN."""
        copy = self._copies.get(entry_id)
        if copy is not None:
            return copy, Status.OK
        if entry_id not in self._damaged:
            for part in self._missing:
                if part.first_entry <= entry_id <= part.last_entry:
                    return None, part.status
        return None, Status.UNKNOWN
