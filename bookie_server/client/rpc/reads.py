"""Reads of entries from one of Apache's bookies: in batches where it can, else one by one, many at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Protocol

from bookie_server.client.read_stream import unreachable
from bookie_server.wire.messages import IdRange, ReadReply, ReadRequest, Status
from bookie_server.wire.record import MalformedRecordsError, Run, parse_run
from bookie_server.wire.rpc import messages, v2, v3
from bookie_server.wire.rpc.sections import record_of
from bookie_server.wire.rpc.statuses import RpcStatus, meaning_of
from bookie_server.wire.stripe import EVERY_ID
from bookkeeper_metadata.model import NO_ENTRY_ID

READS_AT_ONCE = 64
"""Most entries asked for at the same time, one by one."""
READS_MAX = 512
"""Most entries of one reply that are asked for one by one."""
BATCHES_AGAIN_S = 60.0
"""How long a bookie that did not answer its first batch, but reads, is taken for one that knows none."""
_COUNT_MAX = 2**31 - 1


class Ask(Protocol):
    """Asks the bookie; ``None`` if there is no answer in time."""

    async def __call__(self, request: messages.Request, priority: int = 0) -> v3.Answer | None: ...


AskBatch = Callable[[messages.BatchRead], Awaitable[v2.Answer | None]]
IsForcedSince = Callable[[int, int], Awaitable[bool]]


class RpcReads:
    """Of one bookie; for use on one event loop."""

    def __init__(
        self,
        ask: Ask,
        is_forced_since: IsForcedSince,
        connection_number: Callable[[], int],
        ask_batch: AskBatch,
        *,
        has_batches: bool,
    ) -> None:
        """``is_forced_since``: whether all that came of a ledger by the connection of this number is durable."""
        self._ask = ask
        self._is_forced_since = is_forced_since
        self._connection_number = connection_number
        self._ask_batch = ask_batch
        self._has_batches = has_batches
        self._had_batch = False
        self._batches_again_s = 0.0

    async def read(self, request: ReadRequest) -> ReadReply:
        """See :meth:`bookie_server.client.interface.BookieClient.read`."""
        stripe = request.stripe or EVERY_ID
        # A batch ends at the first entry that only others have.
        is_striped = stripe.write_quorum < stripe.ensemble_size
        loop = asyncio.get_running_loop()
        has_batches = self._has_batches and loop.time() >= self._batches_again_s
        if not has_batches or is_striped or request.is_fencing:
            return await self._read_singly(request)
        reply = await self._read_batch(request)
        if reply is not None:
            return reply
        # Apache's bookies before 4.17 know no batches, and end the connection.
        if self._had_batch:
            return unreachable(request)
        reply = await self._read_singly(request)
        if reply.runs:
            # Or only this one answer was lost, which must not make all that follow dear.
            self._batches_again_s = loop.time() + BATCHES_AGAIN_S
        return reply

    async def _read_batch(self, request: ReadRequest) -> ReadReply | None:
        first, last = request.first_entry, request.last_entry
        count = min(last - first + 1, _COUNT_MAX)
        answer = await self._ask_batch(
            messages.BatchRead(request.ledger_id, first, 0, count, request.size_bytes_max)
        )
        if answer is None or not isinstance(answer.reply, messages.BatchReply):
            return None
        self._had_batch = True
        if answer.status in (RpcStatus.ENOENTRY, RpcStatus.EIO) and first < last:
            # It was told of the first alone, and the others may be there.
            return await self._read_singly(request)
        if answer.status is not RpcStatus.EOK:
            # Of none it would say anything else: it is busy, say, or has no such ledger.
            refused = IdRange(first, last, meaning_of(answer.status))
            return ReadReply((), (refused,), NO_ENTRY_ID)
        try:
            run = parse_run(answer.reply.body)
        except MalformedRecordsError:
            return None
        if not _is_within(run, request.ledger_id, first, last):
            return None
        if not isinstance(run.entry_ids, range):
            # What lies behind a gap is asked for again: of what is in it nothing was said.
            gap = next(at for at, entry_id in enumerate(run.entry_ids) if entry_id != first + at)
            run = run.slice(0, gap)
        behind = run.last_entry + 1
        left = (IdRange(behind, last, Status.NOT_REACHED),) if behind <= last else ()
        return ReadReply((run,), left, run.last_add_confirmed())

    async def _read_singly(self, request: ReadRequest) -> ReadReply:
        """Ask for each of the wanted ids, as many as the reply may hold."""
        stripe, last = request.stripe or EVERY_ID, request.last_entry
        found, connection = _Found(request), self._connection_number()
        entry_id = stripe.next(request.first_entry)
        window, is_silent = 1, False
        while entry_id <= last and not found.is_full:
            ids: list[int] = []
            while entry_id <= last and len(ids) < window:
                ids.append(entry_id)
                entry_id = stripe.next(entry_id + 1)
            answers = await asyncio.gather(*(self._read_one(request, each) for each in ids))
            for each, answer in zip(ids, answers, strict=True):
                found.take(each, answer)
            # The first may have met a connection that had ended; another has had its time, and each more would cost as much.
            was_silent, is_silent = is_silent, all(answer is None for answer in answers)
            if was_silent and is_silent:
                found.leave(entry_id, Status.UNREACHABLE)
                break
            window = min(READS_AT_ONCE, found.room)
        else:
            found.leave(entry_id)
        is_denied = request.is_fencing and found.denies
        if is_denied and not await self._is_forced_since(connection, request.ledger_id):
            found.doubt()
        return found.reply()

    async def _read_one(self, request: ReadRequest, entry_id: int) -> v3.Answer | None:
        if not request.is_fencing:
            return await self._ask(messages.ReadEntry(request.ledger_id, entry_id))
        flag, key = messages.READ_FLAG_FENCE, request.master_key
        fencing = messages.ReadEntry(request.ledger_id, entry_id, key, flag=flag)
        return await self._ask(fencing, messages.PRIORITY_HIGH)


class _Found:
    """What a reply that is asked for one by one comes to."""

    def __init__(self, request: ReadRequest) -> None:
        self._request = request
        self._records: list[bytes] = []
        self._size = self._asked = self._largest = 0
        self._missed: Status | None = None
        """Why the id before was not found; ``None``: it was."""
        self.missing: list[IdRange] = []

    @property
    def is_full(self) -> bool:
        return self._size >= self._request.size_bytes_max or self._asked >= READS_MAX

    @property
    def room(self) -> int:
        """About how many more of such entries the reply takes, at least one."""
        left = max(0, self._request.size_bytes_max - self._size) // max(1, self._largest)
        return max(1, min(left, READS_MAX - self._asked))

    @property
    def denies(self) -> bool:
        """Whether the bookie says of any id that it was never acknowledged."""
        return any(span.status.is_evidence_of_absence for span in self.missing)

    def take(self, entry_id: int, answer: v3.Answer | None) -> None:
        """The answer for the next of the wanted ids."""
        self._asked += 1
        status, record = self._outcome(entry_id, answer)
        if status is Status.OK:
            self._records.append(record)
            self._size += len(record)
            self._largest = max(self._largest, len(record))
            self._missed = None
            return
        first = self.missing.pop().first_entry if self._missed is status else entry_id
        self.missing.append(IdRange(first, entry_id, status))
        self._missed = status

    def leave(self, entry_id: int, status: Status = Status.NOT_REACHED) -> None:
        """Ids from here on were not asked for: there was enough, or the bookie does not answer."""
        if entry_id <= self._request.last_entry:
            self.missing.append(IdRange(entry_id, self._request.last_entry, status))

    def doubt(self) -> None:
        """The bookie cannot vouch for what it denied."""
        self.missing = [
            replace(span, status=Status.UNKNOWN) if span.status.is_evidence_of_absence else span
            for span in self.missing
        ]

    def reply(self) -> ReadReply:
        """All of it."""
        runs = (parse_run(b"".join(self._records)),) if self._records else ()
        lac = runs[0].last_add_confirmed() if runs else NO_ENTRY_ID
        return ReadReply(runs, tuple(self.missing), lac)

    def _outcome(self, entry_id: int, answer: v3.Answer | None) -> tuple[Status, bytes]:
        if answer is None:
            return Status.UNREACHABLE, b""
        if answer.status is not RpcStatus.EOK:
            return meaning_of(answer.status), b""
        reply = answer.reply
        if not isinstance(reply, messages.ReadReply) or reply.body is None:
            return Status.UNREACHABLE, b""
        record = record_of(reply.body)
        return (Status.OK, record) if self._is_wanted(record, entry_id) else (Status.UNKNOWN, b"")

    def _is_wanted(self, record: bytes, entry_id: int) -> bool:
        try:
            run = parse_run(record)
        except MalformedRecordsError:
            return False
        return _is_within(run, self._request.ledger_id, entry_id, entry_id)


def _is_within(run: Run, ledger_id: int, first: int, last: int) -> bool:
    """Whether the run holds the first of these entries, and none but these."""
    return run.ledger_id == ledger_id and run.first_entry == first and run.last_entry <= last
