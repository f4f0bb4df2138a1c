"""Recovery: take over a ledger its writer left open, and close it at its last entry.

Read top to bottom like the protocol page:

1. CAS the metadata to IN_RECOVERY (a ledger already there is joined, its version untouched).
2. Fence: a fencing LAC read of the last ensemble, until no ack quorum is left unfenced.
3. Read forward from the LAC, fencing with every read, always from the ensemble in the metadata
   when the recovery began, until an entry surely never existed (:mod:`.protocol.recovery_rules`).
4. Write back what was found, the exact bytes read, to an ack quorum (:mod:`.write_back`), while
   the next window is being read.
5. CAS to CLOSED, with the ensembles that were written back to. Until here the fragments in the
   metadata are never touched, so any number of recoverers read the same bookies and come to an
   end of their own; whoever loses the CAS adopts the winner's.

Nothing is guessed: an entry that cannot be decided about aborts the recovery, and the ledger stays
IN_RECOVERY for a later attempt. Nothing is remembered between attempts: one that died may be
repeated from the start at any point. Source: Apache ``LedgerRecoveryOp``; BookKeeperProtocol.tla.
"""

from __future__ import annotations

import asyncio

from bookie_server.wire.digest import Digest, digest_for, master_key
from bookie_server.wire.messages import ReadRequest, Status
from bookie_server.wire.record import parse_header
from bookkeeper_metadata.foundation.backoff import back_off
from bookkeeper_metadata.foundation.tasks import end_tasks
from bookkeeper_metadata.model import NO_ENTRY_ID, Fragment, LedgerMetadata, Stop, Versioned
from spark_bookkeeper.ledger.context import LedgerContext
from spark_bookkeeper.ledger.errors import (
    DigestMismatchError,
    EntryUnreadableError,
    LedgerRecoveryError,
    UnauthorizedError,
)
from spark_bookkeeper.ledger.fetch import FragmentFetcher, verified_runs
from spark_bookkeeper.ledger.last_confirmed import read_last_confirmed
from spark_bookkeeper.ledger.protocol.doubt import NO_DOUBT, Doubt
from spark_bookkeeper.ledger.protocol.quorum import QuorumConfig
from spark_bookkeeper.ledger.protocol.recovery_rules import (
    BookieAnswer,
    RecoveryWindow,
    first_entry_to_recover,
)
from spark_bookkeeper.ledger.protocol.transitions import closed_by_recovery, marked_in_recovery
from spark_bookkeeper.ledger.write_back import WriteBack

RECOVERY_ATTEMPTS_MAX = 5
"""Attempts of a recovery whose fragment is replaced in the metadata while it reads."""


async def recover_ledger(
    cluster: LedgerContext,
    ledger_id: int,
    password: bytes,
    *,
    wants_copies: bool = True,
    doubt: Doubt = NO_DOUBT,
) -> Versioned:
    """Fence, recover and close; returns the closed metadata. A closed ledger is returned as is.

    ``wants_copies``: it has somebody see to it that every copy is there, if there is somebody who does.
    ``doubt``: an operator has decided that what its bookies in limbo cannot give is lost.

    Raises:
        LedgerRecoveryError: something could not be decided or written; try again later.
        UnauthorizedError: the password is not the ledger's.
    """
    for attempt in range(RECOVERY_ATTEMPTS_MAX):
        await back_off(attempt, cluster.random)
        versioned = await begin_recovery(cluster, ledger_id, password)
        if versioned.metadata.is_closed:
            return versioned
        begun_s = asyncio.get_running_loop().time()
        closed = await _Recovery(cluster, ledger_id, versioned, doubt).run()
        if closed is not None:
            cluster.measures.recoveries.add(asyncio.get_running_loop().time() - begun_s)
            if wants_copies:
                # It waits for no more than an ack quorum, and knows nothing of the copies before it.
                await cluster.mark_lacking(ledger_id, closed.metadata.last_fragment.ensemble)
            return closed
    raise LedgerRecoveryError(ledger_id, "its last fragment changed whenever it was recovered")


async def shut_out_writer(cluster: LedgerContext, ledger_id: int, password: bytes) -> Versioned:
    """The first half of a recovery: from here on no add of the ledger's writer is acknowledged.

    Returns the metadata as it is then: IN_RECOVERY or CLOSED.

    Raises:
        LedgerRecoveryError: too few bookies could be fenced for that.
        UnauthorizedError: the password is not the ledger's.
    """
    versioned = await begin_recovery(cluster, ledger_id, password)
    if not versioned.metadata.is_closed:
        await read_last_confirmed(cluster, ledger_id, versioned.metadata, is_fencing=True)
    return versioned


async def begin_recovery(cluster: LedgerContext, ledger_id: int, password: bytes) -> Versioned:
    """The metadata once it is IN_RECOVERY, or CLOSED.

    Raises:
        UnauthorizedError: the password is not the ledger's.
    """
    versioned = await cluster.ledgers.read(ledger_id)
    if versioned.metadata.password != password:
        raise UnauthorizedError(ledger_id)
    if versioned.metadata.is_closed:
        return versioned
    # Only this CAS stops the writer's ensemble changes. Fencing before it would let the writer move
    # to bookies that nobody fences.
    return await cluster.update(ledger_id, marked_in_recovery, versioned)


class _Recovery:
    """One attempt, on the metadata as it stood once IN_RECOVERY."""

    def __init__(
        self,
        cluster: LedgerContext,
        ledger_id: int,
        versioned: Versioned,
        doubt: Doubt,
    ) -> None:
        ensemble = versioned.metadata.last_fragment.ensemble
        self._doubt = doubt
        self._given_up = doubt.given_up_in(ensemble)
        self._cluster = cluster
        self._ledger_id = ledger_id
        self._versioned = versioned
        self._metadata = versioned.metadata
        self._quorum = QuorumConfig.of(versioned.metadata)
        self._digest: Digest = digest_for(self._metadata.digest_type, self._metadata.password)
        self._key = master_key(self._metadata.password)
        self._write_back = WriteBack(cluster, ledger_id, versioned.metadata)

    @property
    def reads_from(self) -> Fragment:
        """The last fragment when the recovery began, whatever was replaced since: the writer wrote
        to its bookies (BOOKKEEPER-581).
        """
        return self._metadata.last_fragment

    async def run(self) -> Versioned | None:
        """The closed metadata; ``None`` if the fragment read from is no longer the last one."""
        confirmed = await read_last_confirmed(
            self._cluster,
            self._ledger_id,
            self._metadata,
            is_fencing=True,
            given_up=self._given_up,
        )
        confirmed = max(confirmed, self._doubt.last_add_confirmed)
        first_entry = first_entry_to_recover(confirmed, self.reads_from.first_entry)
        last_entry, length = await self._recover_from(first_entry)
        if length is None:
            length = await self._length_up_to(last_entry)
        return await self._close(last_entry, length)

    async def _recover_from(self, first_entry: int) -> tuple[int, int | None]:
        """``(last entry, its cumulative length)``; everything up to it is at its ack quorum."""
        length: int | None = None
        reading = asyncio.ensure_future(self._read_window(first_entry))
        try:
            while True:
                window = await reading
                # The next window is read while this one is written back; both go to the same
                # bookies, but one waits for their disks' reads and the other for their syncs.
                if not window.ends_ledger:
                    reading = asyncio.ensure_future(self._read_window(window.next_entry))
                await self._write_back.store(window.found)
                if window.found:
                    # Each entry carries the ledger's length with it, so the last one knows the
                    # total.
                    newest = window.found[-1]
                    length = parse_header(newest.data, newest.offsets[0]).length
                if window.ends_ledger:
                    return window.next_entry - 1, length
        finally:
            await end_tasks([reading])

    async def _read_window(self, first_entry: int) -> RecoveryWindow:
        """Ask all positions at once; stop waiting for the rest once the window is decided."""
        last_entry = first_entry + self._cluster.settings.recovery_window_entries - 1
        window = RecoveryWindow(self._quorum, first_entry, last_entry, self._given_up)
        asked = [
            asyncio.ensure_future(self._ask(position, first_entry, last_entry))
            for position in range(self._quorum.ensemble_size)
        ]
        try:
            for next_answer in asyncio.as_completed(asked):
                # In the order in which they come: the slowest bookie is waited for only when its
                # word is needed.
                window.on_answer(*await next_answer)
                if window.is_decided:
                    return window
        finally:
            await end_tasks(asked)
        if not window.found:
            detail = f"entry {first_entry} is neither readable nor provably absent"
            raise LedgerRecoveryError(self._ledger_id, detail)
        return window

    async def _ask(
        self, position: int, first_entry: int, last_entry: int
    ) -> tuple[int, BookieAnswer]:
        request = ReadRequest(
            ledger_id=self._ledger_id,
            first_entry=first_entry,
            last_entry=last_entry,
            stripe=self._quorum.stripe_of(position),
            is_fencing=True,
            master_key=self._key,
            size_bytes_max=self._cluster.settings.read_size_bytes,
        )
        reply = await self._cluster.client(self.reads_from.ensemble[position]).read(request)
        if any(part.status is Status.UNAUTHORIZED for part in reply.missing):
            raise UnauthorizedError(self._ledger_id)
        good, bad = verified_runs(reply, request, self._digest)
        copies = {
            entry_id: run.slice(index, index + 1)
            for run in good
            for index, entry_id in enumerate(run.entry_ids)
        }
        return position, BookieAnswer(copies, frozenset(bad), reply.missing)

    async def _close(self, last_entry: int, length: int) -> Versioned | None:
        def close(metadata: LedgerMetadata) -> LedgerMetadata | Stop[Fragment]:
            read_from, written_to = self._metadata.last_fragment, self._write_back.fragments
            return closed_by_recovery(metadata, read_from, written_to, last_entry, length)

        ledgers = self._cluster.ledgers
        outcome = await ledgers.update(self._ledger_id, close, known=self._versioned)
        return None if isinstance(outcome, Stop) else outcome

    async def _length_up_to(self, last_entry: int) -> int:
        """The cumulative length at an entry that needed no recovery, read from its header.

        Where an operator has given up what is lost, that of the last entry near it that can be read: less than it was.
        """
        fetcher = FragmentFetcher(self._cluster, self._ledger_id, self._quorum, self._digest)
        entry_id, step = last_entry, 1
        while entry_id > NO_ENTRY_ID:
            fragment = self._metadata.fragment_of(entry_id)
            try:
                (run,) = await fetcher.fetch(fragment, entry_id, entry_id, turn=0)
            except (EntryUnreadableError, DigestMismatchError) as error:
                if not self._given_up:
                    raise
                if not _is_lost(error):
                    detail = f"the ledger's length is with a bookie that does not answer: {error}"
                    raise LedgerRecoveryError(self._ledger_id, detail) from error
                entry_id, step = entry_id - step, 2 * step
            else:
                return parse_header(run.data, run.offsets[0]).length
        return 0


def _is_lost(error: EntryUnreadableError | DigestMismatchError) -> bool:
    """Whether each bookie has answered: none of them may come back with the entry."""
    if isinstance(error, DigestMismatchError):
        return True
    said = {answer.rpartition(":")[2] for answer in error.answers}
    return said <= {Status.NO_ENTRY.name, Status.NO_LEDGER.name, Status.UNKNOWN.name}
