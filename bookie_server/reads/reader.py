"""Reader: answers reads from what is stored, and says of the rest what may be said.

It answers from memory or, through a few threads, from entry logs, and changes nothing. Whatever a
read has to wait for first, a fence, a group on its way to the disk, news of a ledger, its caller has
waited for.
"""

from __future__ import annotations

from functools import partial

from bookie_server.core.absence import status_of, status_of_absence
from bookie_server.core.damaged_entries import DamagedEntries
from bookie_server.core.explicit_lac import lac_of_packet
from bookie_server.core.presence import Presence
from bookie_server.memory.budget import Room
from bookie_server.reads.fetching import Fetcher
from bookie_server.storage.contents import Contents
from bookie_server.storage.logs.id_pattern import consecutive
from bookie_server.storage.read_plan import ReadPlan
from bookie_server.wire.limits import LIST_RANGES_MAX, READ_SIZE_BYTES_MAX
from bookie_server.wire.messages import (
    EntryList,
    IdRange,
    ListRequest,
    LongPoll,
    ReadLacReply,
    ReadRequest,
    Status,
    StoredReply,
)

_LIST_PLACES_MAX = 4_096
"""Looked at for one page of a list: about 10 ms."""
LAC_REPLY_SIZE_BYTES_MAX = 7 * 1024 * 1024
"""Entries in the answer to a long poll; a message has at most 8 MiB."""


class Reader:
    """One bookie's; for use on its event loop."""

    def __init__(
        self, contents: Contents, fetcher: Fetcher, damaged_entries: DamagedEntries
    ) -> None:
        self._contents = contents
        self._fetcher = fetcher
        self._damaged_entries = damaged_entries

    async def read(self, request: ReadRequest, room: Room | None) -> StoredReply:
        """Return the wanted entries, and a status for each id that is not among them."""
        ledger_id = request.ledger_id
        make_plan = partial(
            self._contents.plan_read,
            ledger_id,
            request.first_entry,
            request.last_entry,
            stripe=request.stripe,
            size_bytes_max=min(request.size_bytes_max, READ_SIZE_BYTES_MAX),
        )
        outcome = await self._fetcher.fetch_one(make_plan, room)
        handle = self._contents.ledgers.get(ledger_id)
        absence = self._absence(ledger_id)
        missing_ids = tuple(
            IdRange(span.first, span.last, status_of(span.presence, absence))
            for span in outcome.spans
            if span.presence is not Presence.FOUND
        )
        lac = handle.last_add_confirmed if handle is not None else -1
        return StoredReply(tuple(outcome.chunks), missing_ids, lac)

    async def read_lac(self, ledger_id: int, room: Room | None) -> ReadLacReply:
        """Return the highest entry and the explicit LAC."""
        handle = self._contents.ledgers.get(ledger_id)
        absence = self._absence(ledger_id)
        # A fence goes through the ledger's journal like its adds, so all that was admitted before
        # it is applied by now: no ordinary add can raise the last entry any more.
        last_entry = self._contents.last_entry(ledger_id)
        explicit_lac = handle.explicit_lac if handle is not None else None
        if ledger_id in self._contents.tombstones:
            return ReadLacReply(Status.DELETED)
        # After a loss, the last entry that is left need not be the last one that was stored.
        if absence is Status.UNKNOWN:
            return ReadLacReply(Status.UNKNOWN)
        if last_entry is None:
            status = Status.OK if explicit_lac is not None else absence
            return ReadLacReply(status, None, explicit_lac)
        # The limit does not matter: one entry comes whatever its size.
        make_plan = partial(
            self._contents.plan_read, ledger_id, last_entry, last_entry, size_bytes_max=1
        )
        outcome = await self._fetcher.fetch_one(make_plan, room)
        if not outcome.entry_count:
            return ReadLacReply(Status.UNKNOWN)  # the entry is stored but cannot be read
        return ReadLacReply(Status.OK, b"".join(outcome.chunks), explicit_lac)

    async def read_news(self, ledger_id: int, poll: LongPoll, room: Room | None) -> ReadLacReply:
        """Return what proves a higher LAC than the poll knows, and the entries up to there.

        A release has no reason, and the ledger may have changed in any way while news were waited
        for: so there may be none, and nothing is taken from the time before.
        """
        handle = self._contents.ledgers.get(ledger_id)
        absence = self._absence(ledger_id)
        if handle is None or absence is Status.UNKNOWN:
            return ReadLacReply(absence)
        lac = handle.last_add_confirmed
        if lac <= poll.previous_lac:
            return ReadLacReply(Status.OK)
        wanted: list[tuple[int, int, int]] = []
        explicit_lac = handle.explicit_lac
        if explicit_lac is None or lac_of_packet(explicit_lac) < lac:
            # The highest entry proves the LAC. It lies beyond it, and so is not in the records.
            explicit_lac = None
            last_entry = self._contents.last_entry(ledger_id)
            if last_entry is not None:
                wanted.append((last_entry, last_entry, 1))
        proof_count = len(wanted)
        if size_bytes_max := min(poll.size_bytes_max, READ_SIZE_BYTES_MAX):
            wanted.append((poll.previous_lac + 1, lac, size_bytes_max))

        def make_plans() -> list[ReadPlan]:
            plan_read = self._contents.plan_read
            return [plan_read(ledger_id, *ids, size_bytes_max=most) for *ids, most in wanted]

        outcomes = await self._fetcher.fetch(make_plans, room)
        found = [b"".join(outcome.chunks) for outcome in outcomes]
        proof, records = b"".join(found[:proof_count]), b"".join(found[proof_count:])
        if len(proof) + len(records) > LAC_REPLY_SIZE_BYTES_MAX:
            records = b""  # two entries of the largest size fit no message: the client reads them
        return ReadLacReply(Status.OK, proof or None, explicit_lac, records)

    def list_entries(self, request: ListRequest) -> EntryList:
        """List stored entries, but those known to be damaged, a page at a time.

        LIMBO, of a dropped ledger as well: of the others nothing can be said, but they are welcome. UNKNOWN: nothing at all.
        """
        ledger_id = request.ledger_id
        absence = self._absence(ledger_id)
        handle = self._contents.ledgers.get(ledger_id)
        is_unsure = handle is not None and (handle.is_limbo or handle.is_dropped)
        is_limbo = is_unsure and not self._contents.is_damaged
        if absence is not Status.NO_ENTRY and not is_limbo:
            return EntryList(absence)
        whole = Status.LIMBO if is_limbo else Status.OK
        damaged = self._damaged_entries.of(ledger_id)
        ranges_max = min(request.ranges_max or LIST_RANGES_MAX, LIST_RANGES_MAX)
        held: list[IdRange] = []
        places = 0
        for ids in self._contents.entry_ids(ledger_id, request.first_entry):
            # A ledger of a hundred GiB is one range, and a million places.
            if (places := places + 1) > _LIST_PLACES_MAX and request.ranges_max:
                return EntryList(whole, tuple(held), ids[0], len(damaged))
            sound = [each for each in ids if each not in damaged] if damaged else ids
            for first, size in consecutive(sound):
                last = first + size - 1
                if held and held[-1].last_entry + 1 == first:
                    held[-1] = IdRange(held[-1].first_entry, last, Status.OK)
                elif len(held) < ranges_max:
                    held.append(IdRange(first, last, Status.OK))
                else:
                    # To a client that cannot go on from there the list would seem to be whole.
                    status = whole if request.ranges_max else Status.UNKNOWN
                    return EntryList(status, tuple(held), first, len(damaged))
        return EntryList(whole, tuple(held), damaged_count=len(damaged))

    def _absence(self, ledger_id: int) -> Status:
        return status_of_absence(
            self._contents.ledgers.get(ledger_id),
            is_storage_damaged=self._contents.is_damaged,
            is_deleted=ledger_id in self._contents.tombstones,
        )
