"""Reading the LAC of a ledger that is not closed: ask the last ensemble until it is covered.

The answer of a bookie is the LAC inside the highest entry it holds and the explicit LAC somebody
left there; both are checked against the ledger's digest, and an answer that does not verify proves
nothing. Source: Apache ``ReadLastConfirmedOp``.
"""

from __future__ import annotations

import asyncio

from bookie_server.wire.digest import Digest, digest_for, master_key
from bookie_server.wire.messages import ReadLacReply, Status
from bookie_server.wire.record import MalformedRecordsError, parse_header, parse_run, run_verifies
from metadata.errors import EntryUnreadableError, LedgerRecoveryError, UnauthorizedError
from metadata.model import NO_ENTRY_ID, LedgerMetadata
from spark_bookkeeper.ledger.cluster import Cluster
from spark_bookkeeper.ledger.protocol.quorum import QuorumConfig
from spark_bookkeeper.ledger.protocol.recovery_rules import FenceProgress

_LAC_PACKET_HEADER_SIZE = 16


async def read_last_confirmed(
    cluster: Cluster, ledger_id: int, metadata: LedgerMetadata, *, is_fencing: bool
) -> int:
    """The highest LAC a coverage of the last ensemble knows; -1 if none confirmed anything.

    With ``is_fencing`` every bookie that answers is fenced first, durably; the call then waits for
    coverage, not for stragglers, and recovery's own reads fence whoever is left.

    Raises:
        UnauthorizedError: a bookie has another master key bound to the ledger.
        LedgerRecoveryError (fencing), EntryUnreadableError: too few bookies answered.
    """
    ensemble = metadata.last_fragment.ensemble
    await cluster.prepare(ensemble)
    digest = digest_for(metadata.digest_type, metadata.password)
    key = master_key(metadata.password)
    progress = FenceProgress(QuorumConfig.of(metadata))

    async def ask(position: int) -> tuple[int, Status, int]:
        client = cluster.client(ensemble[position])
        reply = await client.read_lac(ledger_id, is_fencing=is_fencing, master_key=key)
        return position, *_verified(reply, ledger_id, digest)

    tasks = [asyncio.ensure_future(ask(position)) for position in range(len(ensemble))]
    answers: list[str] = []
    try:
        for next_answer in asyncio.as_completed(tasks):
            position, status, last_add_confirmed = await next_answer
            answers.append(f"{ensemble[position]}:{status.name}")
            progress.answered(position, status, last_add_confirmed)
            if progress.is_unauthorized:
                raise UnauthorizedError(ledger_id)
            if progress.is_covered:
                return progress.last_add_confirmed
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    if is_fencing:
        raise LedgerRecoveryError(
            ledger_id, f"too few bookies could be fenced: {' '.join(answers)}"
        )
    raise EntryUnreadableError(ledger_id, NO_ENTRY_ID, tuple(answers))


def _verified(reply: ReadLacReply, ledger_id: int, digest: Digest) -> tuple[Status, int]:
    """The status, and the LAC it proves; UNKNOWN when an OK does not verify."""
    if reply.status is not Status.OK:
        return reply.status, NO_ENTRY_ID
    known = [NO_ENTRY_ID]
    if reply.last_entry is not None:
        lac = _lac_of_entry(reply.last_entry, ledger_id, digest)
        if lac is None:
            return Status.UNKNOWN, NO_ENTRY_ID
        known.append(lac)
    if reply.explicit_lac is not None:
        lac = lac_of_packet(reply.explicit_lac, ledger_id, digest)
        if lac is None:
            return Status.UNKNOWN, NO_ENTRY_ID
        known.append(lac)
    return Status.OK, max(known)


def _lac_of_entry(record: bytes, ledger_id: int, digest: Digest) -> int | None:
    try:
        run = parse_run(record)
    except MalformedRecordsError:
        return None
    if run.ledger_id != ledger_id or len(run) != 1 or not run_verifies(run, digest):
        return None
    return parse_header(record).last_add_confirmed


def lac_of_packet(packet: bytes, ledger_id: int, digest: Digest) -> int | None:
    """The LAC in an explicit-LAC packet; ``None`` when it is another ledger's or damaged."""
    header, stored = packet[:_LAC_PACKET_HEADER_SIZE], packet[_LAC_PACKET_HEADER_SIZE:]
    if len(header) != _LAC_PACKET_HEADER_SIZE or int.from_bytes(header[:8]) != ledger_id:
        return None
    if not digest.verifies(header, stored, b""):
        return None
    return int.from_bytes(header[8:], signed=True)
