"""What a bookie answers to Apache's requests, adds aside: each is one or two questions to :class:`Bookie`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from bookie_server.core.explicit_lac import lac_of_packet
from bookie_server.memory.budget import Room
from bookie_server.serving.service import BookieService
from bookie_server.wire.buffer import Buffer
from bookie_server.wire.messages import (
    ListRequest,
    LongPoll,
    ReadLacReply,
    ReadLacRequest,
    ReadRequest,
    Status,
    StoredReply,
)
from bookie_server.wire.record import LENGTH_SIZE, parse_header, parse_run
from bookie_server.wire.rpc import messages
from bookie_server.wire.rpc.entry_list import EntryListEncoder
from bookie_server.wire.rpc.statuses import RpcStatus, answer_of
from bookkeeper_metadata.model import ENTRY_ID_MAX, NO_ENTRY_ID

PLUGIN_OF_NONE = b"AuthDisabledPlugin"
"""What a bookie that asks nobody who they are calls its authentication."""
LIST_SIZE_BYTES_MAX = 4 * 1024 * 1024
"""Of a list of entries; with more its answer would be too large a frame."""
Answered = tuple[RpcStatus, messages.Reply | None]


class Answering:
    """Of one bookie; for use on its event loop."""

    def __init__(self, service: BookieService) -> None:
        self._service = service
        self._bookie = service.bookie

    async def answer(self, request: messages.Request, room: Room) -> Answered:
        """Status and reply; ``room`` is what the reply takes until it is sent."""
        match request:
            case messages.ReadEntry():
                return await self._read(request, room)
            case messages.BatchRead():
                return await self._batch(request, room)
            case messages.ReadLac(ledger_id):
                return await self._read_lac(ledger_id, room)
            case messages.WriteLac(ledger_id, _, master_key, body):
                status = await self._bookie.write_lac(ledger_id, bytes(master_key), bytes(body))
                return answer_of(status), messages.LedgerReply(ledger_id)
            case messages.ForceLedger(ledger_id):
                status = await self._bookie.settle(ledger_id)
                return answer_of(status), messages.LedgerReply(ledger_id)
            case messages.ListEntries(ledger_id):
                return await self._list(ledger_id, room)
            case messages.GetInfo():
                return await self._info(request.requested or 0)
            case messages.Authenticate():
                return RpcStatus.EOK, messages.Authenticate(PLUGIN_OF_NONE, b"")
            case messages.StartTls() | messages.AddEntry():
                return RpcStatus.EBADREQ, None

    async def _read(self, request: messages.ReadEntry, room: Room) -> Answered:
        if request.is_long_poll:
            return await self._poll(request, request.previous_lac or 0, room)
        if request.entry_id == NO_ENTRY_ID:
            return await self._read_last(request, room)
        stored = await self._bookie.read(
            ReadRequest(
                ledger_id=request.ledger_id,
                first_entry=request.entry_id,
                last_entry=request.entry_id,
                is_fencing=request.is_fencing,
                master_key=bytes(request.master_key or b""),
            ),
            room,
        )
        if not stored.chunks:
            return answer_of(stored.missing[0].status), refusal_of(request)
        body = entry_of(stored.chunks)
        # Whoever fences is about to find out for itself.
        max_lac = None if request.is_fencing else stored.last_add_confirmed
        ids = request.ledger_id, request.entry_id
        return RpcStatus.EOK, messages.ReadReply(*ids, body, max_lac)

    async def _read_last(self, request: messages.ReadEntry, room: Room) -> Answered:
        found = await self._bookie.read_lac(
            ReadLacRequest(request.ledger_id, request.is_fencing, bytes(request.master_key or b"")),
            room,
        )
        if found.last_entry is None:
            # A packet alone, of a ledger without entries, is no entry.
            status = Status.NO_ENTRY if found.status is Status.OK else found.status
            return answer_of(status), refusal_of(request)
        body = entry_of((found.last_entry,))
        max_lac = None if request.is_fencing else lac_of(found)
        ids = request.ledger_id, request.entry_id
        return RpcStatus.EOK, messages.ReadReply(*ids, body, max_lac)

    async def _poll(self, request: messages.ReadEntry, previous_lac: int, room: Room) -> Answered:
        """Wait for the LAC to exceed one that the client knows, and bring the entry behind that."""
        ledger_id = request.ledger_id
        timeout_ms = max(0, request.timeout_ms or 0)
        # Of a ledger that is unknown here news may be long in coming, and at another bookie at once.
        found = await self._news(ledger_id, previous_lac, 0, room)
        # Not by what the highest entry knows: one that was sent anew may know less than was known below it.
        is_empty = not (found.records or found.last_entry or found.explicit_lac)
        is_waiting = found.status is Status.OK and is_empty and timeout_ms > 0
        if is_waiting:
            found = await self._news(ledger_id, previous_lac, timeout_ms, room)
        if found.status is not Status.OK:
            return answer_of(found.status), refusal_of(request)
        lac = max(lac_of(found), previous_lac)
        # The entry behind the known LAC is another bookie's, perhaps.
        if not found.records or parse_header(found.records).entry_id != previous_lac + 1:
            return RpcStatus.EOK, messages.ReadReply(ledger_id, NO_ENTRY_ID, None, lac)
        now_ms = time.time_ns() // 1_000_000 if is_waiting else None
        body = entry_of((found.records,))
        known_lac = max(lac, previous_lac + 1)
        return RpcStatus.EOK, messages.ReadReply(
            ledger_id, previous_lac + 1, body, known_lac, now_ms
        )

    async def _news(
        self, ledger_id: int, previous_lac: int, timeout_ms: int, room: Room
    ) -> ReadLacReply:
        # One entry comes whatever its size, and no second one does.
        poll = LongPoll(previous_lac=previous_lac, timeout_ms=timeout_ms, size_bytes_max=1)
        return await self._bookie.read_lac(ReadLacRequest(ledger_id, long_poll=poll), room)

    async def _batch(self, request: messages.BatchRead, room: Room) -> Answered:
        first = request.first_entry
        last = min(first + (request.count_max or ENTRY_ID_MAX) - 1, ENTRY_ID_MAX)
        stored = await self._bookie.read(
            ReadRequest(
                ledger_id=request.ledger_id,
                first_entry=first,
                last_entry=last,
                is_fencing=request.is_fencing,
                master_key=bytes(request.master_key or b""),
                size_bytes_max=request.size_bytes_max,
            ),
            room,
        )
        if stored.missing and stored.missing[0].first_entry == first:
            return answer_of(stored.missing[0].status), refusal_of(request)
        body = records_before_a_gap(stored)
        return RpcStatus.EOK, messages.BatchReply(request.ledger_id, first, request.number, body)

    async def _read_lac(self, ledger_id: int, room: Room) -> Answered:
        found = await self._bookie.read_lac(ReadLacRequest(ledger_id), room)
        if found.status is Status.OK:
            entry = entry_of((found.last_entry,)) if found.last_entry is not None else None
            return RpcStatus.EOK, messages.LacReply(ledger_id, found.explicit_lac, entry)
        status = found.status
        # Apache's says that it has neither, whatever the reason is.
        known = Status.NO_ENTRY if status.is_evidence_of_absence else status
        return answer_of(known), messages.LacReply(ledger_id)

    async def _list(self, ledger_id: int, room: Room) -> Answered:
        # One at a time: each looks at every range, and may come to megabytes.
        async with self._service.listing:
            return await self._list_now(ledger_id, room)

    async def _list_now(self, ledger_id: int, room: Room) -> Answered:
        encoder = EntryListEncoder()
        first_entry: int | None = 0
        while first_entry is not None:
            page = self._bookie.list_entries(ListRequest(ledger_id, first_entry))
            # With damaged ones left out, or in limbo, it would tell what is absent, and cannot know.
            status = Status.UNKNOWN if page.damaged_count else page.status
            if status is not Status.OK:
                known = status if status.is_evidence_of_absence else Status.UNKNOWN
                return answer_of(known), messages.ListReply(ledger_id)
            for span in page.held:
                encoder.add(span.first_entry, span.last_entry)
            if encoder.size_bytes > LIST_SIZE_BYTES_MAX:
                return RpcStatus.EIO, messages.ListReply(ledger_id)
            first_entry = page.next_entry or None
            await asyncio.sleep(0)
        encoded = encoder.finish()
        room.resize(len(encoded))
        return RpcStatus.EOK, messages.ListReply(ledger_id, encoded)

    async def _info(self, requested: int) -> Answered:
        if not requested:
            return RpcStatus.EOK, messages.InfoReply()
        disk = await self._service.disk_usage()
        total = disk.total if requested & messages.INFO_TOTAL_BYTES else None
        free = disk.free if requested & messages.INFO_FREE_BYTES else None
        return RpcStatus.EOK, messages.InfoReply(total, free)


def refusal_of(request: messages.Request | None) -> messages.Reply | None:
    """What says which request it is that gets nothing but a status."""
    match request:
        case messages.AddEntry(ledger_id, entry_id):
            return messages.AddReply(ledger_id, entry_id)
        case messages.ReadEntry(ledger_id, entry_id):
            return messages.ReadReply(ledger_id, entry_id)
        case messages.BatchRead(ledger_id, first, number):
            return messages.BatchReply(ledger_id, first, number)
        case messages.WriteLac(ledger_id) | messages.ForceLedger(ledger_id):
            return messages.LedgerReply(ledger_id)
        case messages.ReadLac(ledger_id):
            return messages.LacReply(ledger_id)
        case messages.ListEntries(ledger_id):
            return messages.ListReply(ledger_id)
        case messages.GetInfo():
            return messages.InfoReply()
        case messages.Authenticate():
            return messages.Authenticate(PLUGIN_OF_NONE, b"")
        case messages.StartTls() | None:
            return None


def entry_of(chunks: Sequence[Buffer]) -> Buffer:
    """The entry of a single record, which may be in several chunks, without the length in front."""
    record = chunks[0] if len(chunks) == 1 else b"".join(chunks)
    return memoryview(record)[LENGTH_SIZE:]


def lac_of(found: ReadLacReply) -> int:
    """The highest LAC that a reply proves."""
    entry_lac = packet_lac = NO_ENTRY_ID
    if found.last_entry is not None:
        entry_lac = parse_header(found.last_entry).last_add_confirmed
    if found.explicit_lac is not None:
        packet_lac = lac_of_packet(found.explicit_lac)
    return max(entry_lac, packet_lac)


def records_before_a_gap(stored: StoredReply) -> Buffer:
    """The records up to the first id that is missing: a batch has no way to tell of one."""
    records = stored.chunks[0] if len(stored.chunks) == 1 else b"".join(stored.chunks)
    if not stored.missing:
        return records
    run = parse_run(records)
    before = run.between(0, stored.missing[0].first_entry - 1)
    return before.data if before is not None else b""
