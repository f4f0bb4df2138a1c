"""Copies entries to one bookie, byte for byte as they were read and only if their digests verify.

A bookie that holds an entry already compares it. When a copy returns, what it was asked for is on the bookie's disk.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Sequence
from functools import partial

from bookie_server.core.shares import Share, not_held
from bookie_server.wire.digest import digest_for
from bookie_server.wire.limits import ID_SPAN_MAX
from bookie_server.wire.messages import SAYS_WHAT_IS_WANTED, IdRange, Status
from bookie_server.wire.record import Run
from bookkeeper_metadata.foundation.pace import LoopPace
from bookkeeper_metadata.foundation.tasks import end_tasks, settle
from bookkeeper_metadata.model import LedgerMetadata
from spark_bookkeeper.ledger.context import LedgerContext
from spark_bookkeeper.ledger.fetch import Fetched, FragmentFetcher
from spark_bookkeeper.ledger.protocol.quorum import QuorumConfig
from spark_bookkeeper.ledger.protocol.recovery_adds import RecoveryAdds, cut_to_size

WINDOW_BYTES = 4 * 1024 * 1024
"""Read at a time, as soon as it is known how large a ledger's entries are."""
_ENTRIES_AT_FIRST = 8
_GROWTH = 8
_VAIN_MAX = 1_000
"""Windows one behind the other of which nothing can be had, before the rest is given up: others say that they have it."""


class TargetRefusedError(Exception):
    """The bookie does not take the copies, or not now; another one may."""

    def __init__(self, bookie_id: str, status: Status) -> None:
        super().__init__(f"{bookie_id} answered {status.name}")
        self.bookie_id = bookie_id
        self.status = status


class LedgerCopier:
    """Copies of one ledger's entries."""

    def __init__(
        self, cluster: LedgerContext, ledger_id: int, metadata: LedgerMetadata, pace: LoopPace
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
        self._adds = RecoveryAdds(ledger_id, metadata)
        self._turn = 0

    async def copy(self, share: Share, target: str, held: Sequence[IdRange] | None = None) -> int:
        """Give ``target`` the entries of a share that it does not hold; returns how many bytes those are.

        ``held`` says that it is a member, and what it has: it gets what can be had even if not all can.

        Raises:
            TargetRefusedError: the bookie does not take them.
            DigestMismatchError, EntryUnreadableError: no replica returned one of the entries.
        """
        await self._cluster.prepare((target,))
        copied, entries = 0, _ENTRIES_AT_FIRST
        first, in_vain = share.fragment.first_entry, 0
        incomplete: Fetched | None = None
        sending: asyncio.Future[None] | None = None
        try:
            while first <= share.last_entry and in_vain < _VAIN_MAX:
                # No bookie takes ids that are further apart in one section.
                last = first + ID_SPAN_MAX - 1
                wanted = not_held(share.entry_ids(first, last), held or (), entries)
                if wanted:
                    fetched = await self._fetcher.fetch_some(
                        share.fragment, wanted, self._turn, enough_bytes=WINDOW_BYTES
                    )
                    self._turn += 1
                    if held is None:
                        self._fetcher.require(fetched)
                    known = fetched.before_postponed()  # what lies behind is asked for again
                    incomplete = incomplete or (known if known.missing else None)
                    size_bytes = sum(run.size_bytes for run in fetched.runs)
                    if sending is not None:
                        await sending
                    # While these are on their way, the next ones are read.
                    sending = asyncio.ensure_future(self._send(fetched.runs, size_bytes, target))
                    copied += size_bytes
                    fitting = WINDOW_BYTES * len(wanted) // max(size_bytes, 1)
                    entries = max(1, min(fitting, _GROWTH * entries))
                    # Behind the window, or where it was cut off: what is sent twice is compared.
                    last = fetched.postponed[0] - 1 if fetched.postponed else wanted[-1]
                    if size_bytes:
                        in_vain = 0
                    else:
                        # By its metadata a ledger may have 2^62 entries of which there is none.
                        in_vain += 1
                        last = await self._last_missing(share, last)
                    first = last + 1
                else:
                    first = max(last + 1, _behind(held or (), first))
        except BaseException:
            if sending is not None:
                await end_tasks([sending])
            raise
        if sending is not None:
            await sending
        if incomplete is not None:
            self._fetcher.require(incomplete)
        return copied

    async def _last_missing(self, share: Share, entry_id: int) -> int:
        """The last entry, ``entry_id`` or one behind it, up to which every member that can be asked says that it has none."""
        if entry_id >= share.last_entry:
            return entry_id  # behind it there may be no id that can be asked for
        lists = await asyncio.gather(
            *(
                self._cluster.client(member).list_page(self._ledger_id, entry_id + 1)
                for member in share.fragment.ensemble
                if member != share.bookie_id
            )
        )
        begins = [share.last_entry + 1]
        for each in lists:
            if each.status is Status.UNREACHABLE:
                continue  # what it has cannot be read now
            if each.status not in SAYS_WHAT_IS_WANTED:
                return entry_id
            parts = [part.first_entry for part in each.held if part.last_entry > entry_id]
            # A page may be empty, and another one behind it.
            begins += parts[:1] or ([each.next_entry] if each.next_entry else [])
        return max(entry_id, min(begins) - 1)

    async def _send(self, runs: Sequence[Run], size_bytes: int, target: str) -> None:
        await self._pace.take(size_bytes)
        limit = self._cluster.settings.connection.frame_size_bytes_max
        statuses = await asyncio.gather(
            *(self._write(target, parts) for parts in cut_to_size(runs, limit))
        )
        for status in statuses:
            if status is not Status.OK:
                raise TargetRefusedError(target, status)

    def _write(self, target: str, runs: Sequence[Run]) -> asyncio.Future[Status]:
        answer: asyncio.Future[Status] = asyncio.get_running_loop().create_future()
        self._cluster.client(target).write(self._adds.section(runs), partial(settle, answer))
        return answer


def _behind(held: Sequence[IdRange], entry_id: int) -> int:
    """The entry behind the range that has this one; the same where none has."""
    at = bisect_left(held, entry_id, key=lambda part: part.last_entry)
    is_held = at < len(held) and held[at].first_entry <= entry_id
    return held[at].last_entry + 1 if is_held else entry_id
