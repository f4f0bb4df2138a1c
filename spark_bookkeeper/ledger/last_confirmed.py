"""Reading the LAC of a ledger that is not closed: ask the last ensemble until it is covered.

A bookie answers with the highest entry it holds, which carries an older LAC, and with the explicit
LAC a resting writer left. Both are checked against the ledger's digest. An entry that does not
verify makes the whole answer worthless; a packet that does not is ignored, for it is a hint.

A LAC carried by an entry is proved by that entry's being there. A packet's is believed as far as
a bookie is seen to hold an entry of that id: an acknowledged entry is held by a bookie of every
coverage, so a true LAC that was confirmed before the question is never doubted by it.
Source: Apache ``ReadLastConfirmedOp``.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from bookie_server.wire.digest import Digest, digest_for, master_key
from bookie_server.wire.messages import (
    SAYS_WHAT_IS_WANTED,
    ReadLacReply,
    ReadLacRequest,
    ReadRequest,
    Status,
)
from bookie_server.wire.record import (
    MalformedRecordsError,
    parse_header,
    parse_lac_packet,
    parse_run,
    run_verifies,
)
from bookkeeper_metadata.foundation.tasks import end_tasks
from bookkeeper_metadata.model import NO_ENTRY_ID, LedgerMetadata
from spark_bookkeeper.ledger.context import LedgerContext
from spark_bookkeeper.ledger.errors import (
    EntryUnreadableError,
    LedgerRecoveryError,
    UnauthorizedError,
)
from spark_bookkeeper.ledger.fetch import verified_runs
from spark_bookkeeper.ledger.protocol.doubt import Doubt, Holding
from spark_bookkeeper.ledger.protocol.quorum import QuorumConfig
from spark_bookkeeper.ledger.protocol.recovery_rules import NOTHING, FenceProgress, GivenUp


@dataclass(frozen=True, slots=True)
class LacEvidence:
    """What one answer proves and claims; -1 where it says nothing."""

    status: Status
    """The bookie's, UNKNOWN where its OK came with an entry that does not verify."""
    proved: int = NO_ENTRY_ID
    """The LAC in the entry."""
    claimed: int = NO_ENTRY_ID
    """The LAC in the packet."""
    last_entry: int = NO_ENTRY_ID
    """The entry the bookie sent, its highest."""


async def read_last_confirmed(
    cluster: LedgerContext,
    ledger_id: int,
    metadata: LedgerMetadata,
    *,
    is_fencing: bool,
    given_up: GivenUp = NOTHING,
) -> int:
    """The highest LAC a coverage of the last ensemble knows; -1 if none confirmed anything.

    With ``is_fencing`` every bookie that answers is fenced first, durably; the call then waits for
    coverage, not for stragglers, and recovery's own reads fence the bookies that are left. ``given_up``: positions
    of bookies in limbo whose silence about entries is borne, see :class:`.FenceProgress`.

    Raises:
        UnauthorizedError: a bookie has another master key bound to the ledger.
        LedgerRecoveryError (fencing), EntryUnreadableError: too few bookies answered.
        MetadataUnavailableError: the metadata service did not say where unknown bookies are.
    """
    moves = cluster.connections.moves
    try:
        return await _ask_once(cluster, ledger_id, metadata, given_up, is_fencing=is_fencing)
    except (LedgerRecoveryError, EntryUnreadableError):
        # Those that did not answer may be at other addresses than they were.
        if not await cluster.connections.look_for_moves(moves):
            raise
    return await _ask_once(cluster, ledger_id, metadata, given_up, is_fencing=is_fencing)


async def _ask_once(
    cluster: LedgerContext,
    ledger_id: int,
    metadata: LedgerMetadata,
    given_up: GivenUp,
    *,
    is_fencing: bool,
) -> int:
    ensemble = metadata.last_fragment.ensemble
    await cluster.prepare(ensemble)
    digest = digest_for(metadata.digest_type, metadata.password)
    key = master_key(metadata.password)
    progress = FenceProgress(QuorumConfig.of(metadata), given_up)

    async def ask(position: int) -> tuple[int, LacEvidence]:
        client = cluster.client(ensemble[position])
        reply = await client.read_lac(ReadLacRequest(ledger_id, is_fencing, key))
        return position, lac_evidence(reply, ledger_id, digest)

    tasks = [asyncio.ensure_future(ask(position)) for position in range(len(ensemble))]
    answers: list[str] = []
    received: list[LacEvidence] = []
    try:
        for next_answer in asyncio.as_completed(tasks):
            position, evidence = await next_answer
            answers.append(f"{ensemble[position]}:{evidence.status.name}")
            received.append(evidence)
            progress.on_answer(position, evidence.status, evidence.proved)
            if progress.is_unauthorized:
                raise UnauthorizedError(ledger_id)
            # Not before coverage, and no longer than that: those that are silent can no longer form
            # an ack quorum, whatever they hold.
            if progress.is_covered:
                return max(progress.last_add_confirmed, believable_claim(received))
    finally:
        await end_tasks(tasks)
    if is_fencing:
        raise LedgerRecoveryError(
            ledger_id, f"too few bookies could be fenced: {' '.join(answers)}"
        )
    raise EntryUnreadableError(ledger_id, NO_ENTRY_ID, tuple(answers))


def believable_claim(received: list[LacEvidence]) -> int:
    """The highest explicit LAC not above the highest entry a bookie is seen to hold; -1: none."""
    held = max(evidence.last_entry for evidence in received)
    return max((each.claimed for each in received if each.claimed <= held), default=NO_ENTRY_ID)


def lac_evidence(reply: ReadLacReply, ledger_id: int, digest: Digest) -> LacEvidence:
    """What an answer to a LAC read proves and claims, once its digests are checked."""
    if reply.status is not Status.OK:
        return LacEvidence(reply.status)
    claimed = NO_ENTRY_ID
    if reply.explicit_lac is not None:
        lac = parse_lac_packet(reply.explicit_lac, digest, ledger_id)
        claimed = NO_ENTRY_ID if lac is None else lac
    if reply.last_entry is None:
        return LacEvidence(Status.OK, claimed=claimed)
    try:
        run = parse_run(reply.last_entry)
    except MalformedRecordsError:
        return LacEvidence(Status.UNKNOWN)
    header = parse_header(reply.last_entry)
    is_sound = run.ledger_id == ledger_id and len(run) == 1 and run_verifies(run, digest)
    if not is_sound or header.last_add_confirmed < NO_ENTRY_ID:
        return LacEvidence(Status.UNKNOWN)
    # No writer packages an entry when it knows that this one is confirmed. Apache's re-replication
    # does, with a LAC it has read of the ledger; but the entry's being there does not show that.
    if header.last_add_confirmed >= header.entry_id:
        return LacEvidence(Status.OK, claimed=max(claimed, header.last_add_confirmed))
    return LacEvidence(Status.OK, header.last_add_confirmed, claimed, header.entry_id)


async def look_into(cluster: LedgerContext, ledger_id: int, metadata: LedgerMetadata) -> Doubt:
    """Ask the bookies of the last ensemble what they have, and every other one whether it has more.

    Raises:
        MetadataUnavailableError: the metadata service did not say where they are.
    """
    ensemble = metadata.last_fragment.ensemble
    await cluster.prepare(ensemble)
    digest = digest_for(metadata.digest_type, metadata.password)

    async def ask(bookie_id: str) -> Holding:
        client = cluster.client(bookie_id)
        listed = await client.list_entries(ledger_id)
        if listed.status not in SAYS_WHAT_IS_WANTED:
            return Holding(bookie_id, listed.status)
        if listed.damaged_count:
            return Holding(bookie_id, Status.UNKNOWN, listed.held)
        if not listed.held:
            return Holding(bookie_id, listed.status)
        last_entry = listed.held[-1].last_entry
        request = ReadRequest(ledger_id=ledger_id, first_entry=last_entry, last_entry=last_entry)
        good, _ = verified_runs(await client.read(request), request, digest)
        if not good:
            return Holding(bookie_id, Status.UNKNOWN, listed.held)
        known = parse_header(good[0].data, good[0].offsets[0]).last_add_confirmed
        # A copy of re-replication's may carry a LAC that is not below itself: a claim, and no proof.
        proved = known if NO_ENTRY_ID <= known < last_entry else NO_ENTRY_ID
        return Holding(bookie_id, listed.status, listed.held, proved)

    holdings = tuple(await asyncio.gather(*map(ask, ensemble)))
    others = sorted(await cluster.registry.list_registered_ids() - set(ensemble))
    await cluster.prepare(tuple(others))
    return Doubt(holdings, tuple(await asyncio.gather(*map(ask, others))))
