"""What one of Apache's bookies holds of a ledger: by its list, or by reading, for its DbLedgerStorage never answers who asks for a list."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import islice

from bookie_server.wire.codec import MalformedFrameError
from bookie_server.wire.limits import LIST_RANGES_MAX
from bookie_server.wire.messages import EntryList, IdRange, ReadReply, ReadRequest, Status
from bookie_server.wire.record import MalformedRecordsError, Run, parse_run
from bookie_server.wire.rpc import messages, v3
from bookie_server.wire.rpc.entry_list import parse_entry_list
from bookie_server.wire.rpc.sections import record_of
from bookie_server.wire.rpc.statuses import RpcStatus, meaning_of
from bookkeeper_metadata.model import NO_ENTRY_ID

_READS_OF_PAGE = 16
"""Most reads for one page, of a megabyte each."""

AskOnce = Callable[[messages.Request], Awaitable[v3.Answer | None]]
ReadEntries = Callable[[ReadRequest], Awaitable[ReadReply]]
IsThere = Callable[[], Awaitable[bool]]


class RpcLists:
    """Of one bookie; for use on one event loop."""

    def __init__(self, ask: AskOnce, read: ReadEntries, is_there: IsThere) -> None:
        """``is_there``: whether the bookie answers anything at all."""
        self._ask = ask
        self._read = read
        self._is_there = is_there
        self._has_lists = True

    async def page(self, ledger_id: int, first_entry: int) -> EntryList:
        """See :meth:`bookie_server.client.interface.BookieClient.list_page`."""
        if self._has_lists:
            answer = await self._ask(messages.ListEntries(ledger_id))
            if answer is not None and answer.status is not RpcStatus.EBADREQ:
                return _page_of(answer, first_entry)
            if answer is None and not await self._is_there():
                return EntryList(Status.UNREACHABLE)
            # Asked once: each time it would cost the whole time limit.
            self._has_lists = False
        return await self._page_by_reading(ledger_id, first_entry)

    async def _page_by_reading(self, ledger_id: int, first_entry: int) -> EntryList:
        status, last = await self._last_entry(ledger_id)
        if last is None:
            return EntryList(status)
        held: list[IdRange] = []
        entry_id = first_entry
        for _ in range(_READS_OF_PAGE):
            if entry_id > last or len(held) >= LIST_RANGES_MAX:
                break
            reply = await self._read(
                ReadRequest(ledger_id=ledger_id, first_entry=entry_id, last_entry=last)
            )
            behind = last + 1
            for span in reply.missing:
                if span.status is Status.NOT_REACHED:
                    behind = min(behind, span.first_entry)
                elif span.status is not Status.NO_ENTRY:
                    # It may hold it all the same.
                    return EntryList(span.status)
            for run in reply.runs:
                _add(held, run)
            entry_id = behind
        return EntryList(Status.OK, tuple(held), entry_id if entry_id <= last else 0)

    async def _last_entry(self, ledger_id: int) -> tuple[Status, int | None]:
        """The highest id that it holds; ``None``: it holds none, or does not say."""
        answer = await self._ask(messages.ReadEntry(ledger_id, NO_ENTRY_ID))
        reply = answer.reply if answer is not None else None
        if answer is None or answer.status is not RpcStatus.EOK:
            status = Status.UNREACHABLE if answer is None else meaning_of(answer.status)
            # It knows the ledger, and has no entry of it: an empty list.
            return (Status.OK if status is Status.NO_ENTRY else status), None
        if not isinstance(reply, messages.ReadReply) or reply.body is None:
            return Status.UNREACHABLE, None
        try:
            run = parse_run(record_of(reply.body))
        except MalformedRecordsError:
            return Status.UNREACHABLE, None
        return (Status.OK, run.last_entry) if run.ledger_id == ledger_id else (Status.UNKNOWN, None)


def _page_of(answer: v3.Answer, first_entry: int) -> EntryList:
    if answer.status is not RpcStatus.EOK:
        return EntryList(meaning_of(answer.status))
    reply = answer.reply
    if not isinstance(reply, messages.ListReply) or reply.entries is None:
        return EntryList(Status.UNREACHABLE)
    try:
        ranges = parse_entry_list(reply.entries, first_entry)
        held = tuple(
            IdRange(max(first, first_entry), last, Status.OK)
            for first, last in islice(ranges, LIST_RANGES_MAX)
        )
        following = next(ranges, None)
    except MalformedFrameError:
        return EntryList(Status.UNREACHABLE)
    return EntryList(Status.OK, held, 0 if following is None else following[0])


def _add(held: list[IdRange], run: Run) -> None:
    """Add a run's ids, as part of the range before where they follow it."""
    for entry_id in run.entry_ids:
        if held and held[-1].last_entry + 1 == entry_id:
            held[-1] = IdRange(held[-1].first_entry, entry_id, Status.OK)
        else:
            held.append(IdRange(entry_id, entry_id, Status.OK))
