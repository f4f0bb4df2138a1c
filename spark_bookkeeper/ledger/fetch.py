"""Fetching entries of one fragment: one replica first, the others where it fails or takes too long.

Every record is checked against the ledger's digest before it counts; a copy that does not verify,
or that was not asked for, is as good as none. A replica that has not answered in time is not given
up: the next is asked as well, and whichever returns an entry first has. What no replica returned is
named together with what each said; what that means is decided by ``read_rules``.
Source: Apache ``PendingReadOp``, ``DefaultSpeculativeRequestExecutionPolicy``.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from bookie_server.wire.digest import Digest
from bookie_server.wire.messages import ReadReply, ReadRequest, Status
from bookie_server.wire.record import Run, first_unverified
from bookkeeper_metadata.foundation.invariant import invariant
from bookkeeper_metadata.foundation.tasks import end_tasks
from bookkeeper_metadata.model import Fragment
from spark_bookkeeper.ledger.context import LedgerContext
from spark_bookkeeper.ledger.measures import timed
from spark_bookkeeper.ledger.protocol.quorum import QuorumConfig
from spark_bookkeeper.ledger.protocol.read_rules import (
    DIGEST_MISMATCH,
    Answer,
    ReplicaRequest,
    plan_attempt,
    split_by_write_set,
    unreadable,
)

_AVOIDED_S = 10.0
"""How long a reader asks a bookie last that has kept it waiting."""
_SIZE_BYTES_LATE = 64 * 1024
"""No less is asked for at once, however late answers are."""


def verified_runs(
    reply: ReadReply, request: ReadRequest, digest: Digest
) -> tuple[list[Run], list[int]]:
    """``(runs that verify and were asked for, ids whose copy did not verify)``."""
    good: list[Run] = []
    bad: list[int] = []
    for received in reply.runs:
        if received.ledger_id != request.ledger_id:
            continue  # not an answer to the question
        # One bad record costs itself only: those before and behind it count.
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


@dataclass(slots=True)
class Fetched:
    """The outcome of a fetch: every id is in ``runs``, ``missing`` or ``postponed``, each in ascending order."""

    runs: list[Run]
    missing: Sequence[int] = ()
    """No replica returned these."""
    postponed: Sequence[int] = ()
    """Not asked for any more, or not of every replica: there were enough bytes."""
    answers: list[Answer] = field(default_factory=list)
    """What replicas said instead of returning an entry."""

    def postpone(self, first_entry: int) -> None:
        """From this id on what is missing is not known to be."""
        at = bisect_left(self.missing, first_entry)
        self.postponed = [*self.missing[at:], *self.postponed]
        self.missing = self.missing[:at]

    def before_postponed(self) -> Fetched:
        """The same without what lies behind the first id that was postponed."""
        if not self.postponed:
            return self
        last = self.postponed[0] - 1
        parts = (run.between(run.first_entry, last) for run in self.runs if run.first_entry <= last)
        missing = [entry_id for entry_id in self.missing if entry_id <= last]
        runs = [part for part in parts if part is not None]
        return Fetched(runs, missing, self.postponed, self.answers)


class FragmentFetcher:
    """Reads of one ledger; between calls it remembers only which bookies were slow lately."""

    def __init__(
        self, cluster: LedgerContext, ledger_id: int, quorum: QuorumConfig, digest: Digest
    ) -> None:
        self._cluster = cluster
        self._ledger_id = ledger_id
        self._quorum = quorum
        self._digest = digest
        timeout_ms = cluster.settings.speculative_read_timeout_ms
        self._patience_s = timeout_ms / 1000 if timeout_ms else None
        self._slow_until_s: dict[str, float] = {}
        self._size_bytes = cluster.settings.read_size_bytes
        """How much to ask for at once: half as much whenever answers are late, twice as much for each that brings entries."""

    async def fetch(
        self, fragment: Fragment, first_entry: int, last_entry: int, turn: int
    ) -> list[Run]:
        """All entries ``first_entry..last_entry`` of the fragment, in order.

        ``turn`` says which replica is asked first, so that requests in flight spread.

        Raises:
            DigestMismatchError, EntryUnreadableError: no replica returned one of them.
        """
        fetched = await self.fetch_some(fragment, range(first_entry, last_entry + 1), turn)
        self.require(fetched)
        return fetched.runs

    def require(self, fetched: Fetched) -> None:
        """Raise, as :meth:`fetch`, for the first entry that no replica returned, if there is one."""
        if fetched.missing:
            raise unreadable(self._ledger_id, fetched.missing[0], fetched.answers)

    async def fetch_some(
        self,
        fragment: Fragment,
        wanted: Sequence[int],
        turn: int,
        *,
        enough_bytes: int | None = None,
    ) -> Fetched:
        """Whichever ``wanted`` entries of the fragment, ascending, some replica returns; and those none does.

        About ``enough_bytes`` of them, and of each write set a reply's worth at least.
        """
        measures = self._cluster.measures
        with timed(measures.reads):
            fetched = await self._fetch_groups(fragment, wanted, turn, enough_bytes)
        measures.read_bytes += _size_bytes(fetched)
        return fetched

    async def _fetch_groups(
        self, fragment: Fragment, wanted: Sequence[int], turn: int, enough_bytes: int | None
    ) -> Fetched:
        await self._cluster.prepare(fragment.ensemble)
        groups = split_by_write_set(self._quorum, wanted)
        room = _Room(enough_bytes, len(groups))
        if len(groups) == 1:
            return await self._fetch_group(fragment, groups[0], turn, room)
        parts = await asyncio.gather(
            *(self._fetch_group(fragment, group, turn, room) for group in groups)
        )
        return Fetched(
            in_order([run for part in parts for run in part.runs]),
            sorted(entry_id for part in parts for entry_id in part.missing),
            sorted(entry_id for part in parts for entry_id in part.postponed),
            [answer for part in parts for answer in part.answers],
        )

    async def _fetch_group(
        self, fragment: Fragment, wanted: Sequence[int], turn: int, room: _Room
    ) -> Fetched:
        """Fetch ids of one write set: ask its members in turn, the next also when one is slow."""
        result = Fetched([], wanted)
        order = [(attempt, wanted[0]) for attempt in self._order(fragment, wanted, turn)]
        asked: dict[asyncio.Task[_Reply], int] = {}
        not_asked: list[int] = []
        """From where on replicas were not asked, because there were enough bytes."""

        def ask(attempt: int, first: int) -> None:
            if not (ids := result.missing[bisect_left(result.missing, first) :]):
                return
            replica = plan_attempt(self._quorum, ids, attempt)
            asked[asyncio.create_task(self._ask(fragment, replica, room))] = attempt

        try:
            while result.missing and (order or asked):
                if not asked:
                    ask(*order.pop(0))
                    continue
                done, _ = await asyncio.wait(
                    asked,
                    # With nobody left to ask, patience would gain nothing: each request has a time
                    # limit of its own.
                    timeout=self._patience_s if order else None,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if not done:
                    # All that are outstanding, not the newest alone: each of them has had at least
                    # this long.
                    for attempt in asked.values():
                        self._note_slow(fragment, wanted, attempt)
                    # Where it is the link that is slow, as much once more would be later still.
                    least = min(self._size_bytes, _SIZE_BYTES_LATE)
                    self._size_bytes = max(least, self._size_bytes // 2)
                    ask(*order.pop(0))
                for task in done:
                    attempt = asked.pop(task)
                    before = len(result.missing)
                    begin = self._take(task.result(), result, room)
                    if begin is None or not result.missing:
                        continue
                    if not room.is_full:
                        if len(result.missing) < before:
                            ask(attempt, begin)
                        else:  # it said nothing new, which another may go on to do
                            order.append((attempt, begin))
                    elif result.missing[0] > wanted[0]:
                        result.postpone(result.missing[0])
                        break
                    else:  # But for the first, which would be asked for for ever if it were put off.
                        not_asked.append(max(begin, wanted[0] + 1))
        finally:
            await end_tasks(asked)
        if not_asked:
            result.postpone(min(not_asked))
        result.runs = in_order(result.runs)
        return result

    def _take(self, answered: _Reply, result: Fetched, room: _Room) -> int | None:
        """Add what is new in a reply; returns from where on the same replica can be asked for what its reply's size kept back."""
        good, bad = verified_runs(answered.reply, answered.request, self._digest)
        bookie_id, stripe = answered.bookie_id, answered.request.stripe
        failures = [Answer(bookie_id, each, each, DIGEST_MISMATCH) for each in bad] + [
            Answer(bookie_id, part.first_entry, part.last_entry, part.status.name, stripe)
            for part in answered.reply.missing
            if part.status is not Status.NOT_REACHED
        ]
        if good:
            most = self._cluster.settings.read_size_bytes
            self._size_bytes = min(most, 2 * self._size_bytes)
        before = len(result.missing)
        room.taken_bytes += sum(run.size_bytes for run in good)
        result.runs += good  # another replica may have returned some of them already
        result.answers += failures
        result.missing = _missing(result.missing, good)
        if (begin := answered.not_reached) is not None:
            return begin
        is_progress = not failures and len(result.missing) < before
        return answered.request.first_entry if is_progress else None

    async def _ask(self, fragment: Fragment, replica: ReplicaRequest, room: _Room) -> _Reply:
        request = ReadRequest(
            ledger_id=self._ledger_id,
            first_entry=replica.first_entry,
            last_entry=replica.last_entry,
            stripe=replica.stripe,
            size_bytes_max=min(self._size_bytes, room.share_bytes or self._size_bytes),
        )
        bookie_id = fragment.ensemble[replica.position]
        reply = await self._cluster.client(bookie_id).read(request)
        if any(part.status is Status.UNREACHABLE for part in reply.missing):
            self._cluster.connections.note_silence()
        return _Reply(bookie_id, request, reply)

    def _order(self, fragment: Fragment, wanted: Sequence[int], turn: int) -> list[int]:
        """Places in the write set in the order they are asked: by turn, slow ones last."""
        count = self._quorum.write_quorum
        order = [(turn + step) % count for step in range(count)]
        if self._slow_until_s:
            now_s = asyncio.get_running_loop().time()
            slow = {b for b, until_s in self._slow_until_s.items() if until_s > now_s}
            # The sort is stable, so among the others the turn still spreads the load.
            order.sort(key=lambda attempt: self._bookie(fragment, wanted, attempt) in slow)
        return order

    def _note_slow(self, fragment: Fragment, wanted: Sequence[int], attempt: int) -> None:
        until_s = asyncio.get_running_loop().time() + _AVOIDED_S
        self._slow_until_s[self._bookie(fragment, wanted, attempt)] = until_s
        self._cluster.connections.note_silence()

    def _bookie(self, fragment: Fragment, wanted: Sequence[int], attempt: int) -> str:
        return fragment.ensemble[plan_attempt(self._quorum, wanted, attempt).position]


@dataclass(slots=True)
class _Room:
    """What the replies to one fetch may come to, all write sets together."""

    enough_bytes: int | None
    """``None``: whatever there is."""
    groups: int
    """Write sets that are asked."""
    taken_bytes: int = 0

    @property
    def is_full(self) -> bool:
        return self.enough_bytes is not None and self.taken_bytes >= self.enough_bytes

    @property
    def share_bytes(self) -> int | None:
        """Of one reply: twice an even share, for to the byte the last entry of each would be cut off."""
        return None if self.enough_bytes is None else max(2 * self.enough_bytes // self.groups, 1)


def _size_bytes(fetched: Fetched) -> int:
    return sum(run.size_bytes for run in fetched.runs)


@dataclass(frozen=True, slots=True)
class _Reply:
    bookie_id: str
    request: ReadRequest
    reply: ReadReply

    @property
    def not_reached(self) -> int | None:
        """The first id that it says nothing of for its size; ``None``: there is none."""
        begins = [
            part.first_entry
            for part in self.reply.missing
            if part.status is Status.NOT_REACHED and part.first_entry > self.request.first_entry
        ]
        return min(begins, default=None)


def _missing(wanted: Sequence[int], runs: list[Run]) -> Sequence[int]:
    if not runs:
        return wanted
    # The common answer, told without making a set of its ids.
    if len(runs) == 1 and runs[0].entry_ids == wanted:
        return ()
    held = {entry_id for run in runs for entry_id in run.entry_ids}
    return [entry_id for entry_id in wanted if entry_id not in held]


def in_order(runs: list[Run]) -> list[Run]:
    """The same records as runs in entry order, each once; runs that overlap are split up."""
    ordered = sorted(runs, key=lambda run: run.first_entry)
    if all(a.last_entry < b.first_entry for a, b in pairwise(ordered)):
        return ordered
    # Entry by entry where that cannot be avoided: the runs of a striped ledger interleave, and two
    # replicas may have returned the same entries.
    singles: dict[int, Run] = {}
    for run in ordered:
        for index, entry_id in enumerate(run.entry_ids):
            singles.setdefault(entry_id, run.slice(index, index + 1))
    invariant(bool(singles), "runs are never empty")
    return [singles[entry_id] for entry_id in sorted(singles)]
