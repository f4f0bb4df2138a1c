"""Copies entries to one bookie, byte for byte as they were read and only if their digests verify.

The adds are marked as a recovery's, since the ledger may be fenced; a bookie that holds an entry already
compares it. When a copy returns, what it was asked for is on the bookie's disk.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Iterator, Sequence

from bookie_server.wire.add_frames import encode_section, encode_section_header
from bookie_server.wire.digest import digest_for, master_key
from bookie_server.wire.limits import ID_SPAN_MAX
from bookie_server.wire.messages import EncodedSection, IdRange, Status
from bookie_server.wire.record import Run
from bookkeeper_metadata.model import LedgerMetadata
from spark_bookkeeper.ledger.context import LedgerContext
from spark_bookkeeper.ledger.fetch import FragmentFetcher
from spark_bookkeeper.ledger.protocol.quorum import QuorumConfig
from spark_bookkeeper.ledger.protocol.read_rules import unreadable
from spark_bookkeeper.replication.rules import Share, not_held

WINDOW_BYTES = 4 * 1024 * 1024
"""Read at a time, as soon as it is known how large a ledger's entries are."""
_ENTRIES_AT_FIRST = 8
_GROWTH = 8

TakePace = Callable[[int], Awaitable[None]]
"""Waits until so many bytes may be copied."""


class TargetRefusedError(Exception):
    """The bookie does not take the copies, or not now; another one may."""

    def __init__(self, bookie_id: str, status: Status) -> None:
        super().__init__(f"{bookie_id} answered {status.name}")
        self.bookie_id = bookie_id
        self.status = status


class LedgerCopier:
    """Copies of one ledger's entries."""

    def __init__(
        self, cluster: LedgerContext, ledger_id: int, metadata: LedgerMetadata, pace: TakePace
    ) -> None:
        self._cluster = cluster
        self._ledger_id = ledger_id
        self._pace = pace
        self._fetcher = FragmentFetcher(
            cluster,
            ledger_id,
            QuorumConfig.of(metadata),
            digest_for(metadata.digest_type, metadata.password),
        )
        self._header = encode_section_header(
            ledger_id, master_key(metadata.password), metadata.digest_type, is_recovery=True
        )
        self._turn = 0

    async def copy(self, share: Share, target: str, held: Sequence[IdRange] = ()) -> int:
        """Give ``target`` the entries of a share that it does not hold; returns how many bytes those are.

        Raises:
            TargetRefusedError: the bookie does not take them.
            DigestMismatchError, EntryUnreadableError: no replica returned one of the entries.
        """
        await self._cluster.prepare((target,))
        copied, entries = 0, _ENTRIES_AT_FIRST
        first = share.fragment.first_entry
        while first <= share.last_entry:
            # No bookie takes ids that are further apart in one section.
            last = first + ID_SPAN_MAX - 1
            wanted = not_held(share.entry_ids(first, last), held, entries)
            if wanted:
                size_bytes = await self._copy_some(share, wanted, target)
                copied += size_bytes
                fitting = WINDOW_BYTES * len(wanted) // size_bytes
                entries = max(1, min(fitting, _GROWTH * entries))
                last = wanted[-1]
            first = last + 1
        return copied

    async def _copy_some(self, share: Share, wanted: Sequence[int], target: str) -> int:
        fetched = await self._fetcher.fetch_ids(share.fragment, wanted, self._turn)
        self._turn += 1
        if fetched.missing:
            raise unreadable(self._ledger_id, fetched.missing[0], fetched.answers)
        size_bytes = sum(run.size_bytes for run in fetched.runs)
        await self._pace(size_bytes)
        limit = self._cluster.settings.connection.frame_size_bytes_max
        statuses = await asyncio.gather(
            *(self._write(target, parts) for parts in sections_of(fetched.runs, limit))
        )
        for status in statuses:
            if status is not Status.OK:
                raise TargetRefusedError(target, status)
        return size_bytes

    def _write(self, target: str, runs: Sequence[Run]) -> asyncio.Future[Status]:
        data = encode_section(self._header, [run.data for run in runs])
        first, last = runs[0].first_entry, runs[-1].last_entry
        answer: asyncio.Future[Status] = asyncio.get_running_loop().create_future()

        def note(status: Status) -> None:
            if not answer.done():
                answer.set_result(status)

        section = EncodedSection(self._ledger_id, first, last, True, data)
        self._cluster.client(target).write(section, note)
        return answer


def sections_of(runs: Sequence[Run], size_bytes_max: int) -> Iterator[list[Run]]:
    """The records of the runs, in order, in parts of so many bytes; a larger record is one alone."""
    part: list[Run] = []
    left = size_bytes_max
    for run in runs:
        start = 0
        while start < len(run):
            begin = run.offsets[start]
            is_rest = run.size_bytes - begin <= left
            stop = len(run) if is_rest else bisect_right(run.offsets, begin + left) - 1
            if stop > start or not part:
                stop = max(stop, start + 1)
                part.append(run.slice(start, stop))
                left -= run.end_of(stop - 1) - begin
                start = stop
            if start < len(run):
                yield part
                part, left = [], size_bytes_max
    if part:
        yield part
