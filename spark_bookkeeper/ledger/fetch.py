"""Fetching confirmed entries of one fragment: one replica first, the others where it fails.

Every record is checked against the ledger's digest before it counts; a copy that does not verify,
or that nobody asked for, is as good as none. The result is always complete: all the ids, or an
error that names the first that no replica returned.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import pairwise

from bookie_server.wire.digest import Digest
from bookie_server.wire.messages import ReadReply, ReadRequest, Status
from bookie_server.wire.record import Run, first_unverified
from metadata.invariant import invariant
from metadata.model import Fragment
from spark_bookkeeper.ledger.cluster import Cluster
from spark_bookkeeper.ledger.protocol.quorum import QuorumConfig
from spark_bookkeeper.ledger.protocol.read_rules import (
    DIGEST_MISMATCH,
    Answer,
    ReplicaRequest,
    plan_attempt,
    unreadable,
)


def verified_runs(
    reply: ReadReply, request: ReadRequest, digest: Digest
) -> tuple[list[Run], list[int]]:
    """``(runs that verify and were asked for, ids whose copy did not verify)``."""
    good: list[Run] = []
    bad: list[int] = []
    for received in reply.runs:
        if received.ledger_id != request.ledger_id:
            continue  # not an answer to the question
        run = received.between(request.first_entry, request.last_entry)
        while run is not None:
            at = first_unverified(run, digest)
            if at is None:
                good.append(run)
                break
            bad.append(run.entry_ids[at])
            if at > 0:
                good.append(run.slice(0, at))
            run = run.slice(at + 1, len(run)) if at + 1 < len(run) else None
    return good, bad


class FragmentFetcher:
    """Reads of one ledger; keeps nothing between calls but which replica to prefer."""

    def __init__(
        self, cluster: Cluster, ledger_id: int, quorum: QuorumConfig, digest: Digest
    ) -> None:
        self._cluster = cluster
        self._ledger_id = ledger_id
        self._quorum = quorum
        self._digest = digest

    async def fetch(
        self, fragment: Fragment, first_entry: int, last_entry: int, turn: int
    ) -> list[Run]:
        """All entries ``first_entry..last_entry`` of the fragment, in order.

        ``turn`` says which replica is asked first, so that requests in flight spread.

        Raises:
            DigestMismatchError, EntryUnreadableError: no replica returned one of them.
        """
        await self._cluster.prepare(fragment.ensemble)
        wanted: Sequence[int] = range(first_entry, last_entry + 1)
        runs: list[Run] = []
        answers: list[Answer] = []
        attempt = 0
        while wanted:
            if attempt == self._quorum.write_quorum:
                raise unreadable(self._ledger_id, wanted[0], answers)
            got, reached = await self._attempt(fragment, wanted, attempt + turn, answers)
            runs += got
            missing = _missing(wanted, got)
            # A full reply is progress, not a failure: ask the same replicas for the rest.
            attempt += 0 if reached and len(missing) < len(wanted) else 1
            wanted = missing
        return in_order(runs)

    async def _attempt(
        self,
        fragment: Fragment,
        wanted: Sequence[int],
        attempt: int,
        answers: list[Answer],
    ) -> tuple[list[Run], bool]:
        """Runs of one round, and whether what is missing was merely cut off by full replies."""
        requests = plan_attempt(self._quorum, wanted, attempt % self._quorum.write_quorum)
        replies = await asyncio.gather(*(self._ask(fragment, request) for request in requests))
        runs: list[Run] = []
        was_cut_off = True
        for (request, reply), replica in zip(replies, requests, strict=True):
            bookie_id = fragment.ensemble[replica.position]
            good, bad = verified_runs(reply, request, self._digest)
            runs += good
            failures = [Answer(bookie_id, e, e, DIGEST_MISMATCH) for e in bad] + [
                Answer(bookie_id, part.first_entry, part.last_entry, part.status.name)
                for part in reply.missing
                if part.status is not Status.NOT_REACHED
            ]
            answers += failures
            was_cut_off = was_cut_off and not failures and bool(good)
        return runs, was_cut_off

    async def _ask(
        self, fragment: Fragment, replica: ReplicaRequest
    ) -> tuple[ReadRequest, ReadReply]:
        request = ReadRequest(
            ledger_id=self._ledger_id,
            first_entry=replica.first_entry,
            last_entry=replica.last_entry,
            stripe=replica.stripe,
            size_bytes_max=self._cluster.settings.read_size_bytes,
        )
        client = self._cluster.client(fragment.ensemble[replica.position])
        return request, await client.read(request)


def _missing(wanted: Sequence[int], runs: list[Run]) -> Sequence[int]:
    if len(runs) == 1 and runs[0].entry_ids == wanted:
        return ()
    held = {entry_id for run in runs for entry_id in run.entry_ids}
    return [entry_id for entry_id in wanted if entry_id not in held]


def in_order(runs: list[Run]) -> list[Run]:
    """The same records as runs in entry order; interleaved (striped) runs are split up."""
    ordered = sorted(runs, key=lambda run: run.first_entry)
    if all(a.last_entry < b.first_entry for a, b in pairwise(ordered)):
        return ordered
    singles: dict[int, Run] = {}
    for run in ordered:
        for index, entry_id in enumerate(run.entry_ids):
            singles.setdefault(entry_id, run.slice(index, index + 1))
    invariant(bool(singles), "runs are never empty")
    return [singles[entry_id] for entry_id in sorted(singles)]
