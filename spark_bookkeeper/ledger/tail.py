"""Where a tail gets its news: one long poll at a time at the bookies, and a watch on the metadata.

The bookies say that entries were confirmed; that the ledger was closed, or has another ensemble, only
the metadata says. One bookie is asked at a time, and the next one as soon as an answer brings
nothing: it may be down, behind, or hold other entries. No answer of a bookie ends a tail,
"no such entry" included. What it says is believed like any other answer: an entry, and the LAC in
it, when it verifies; an explicit LAC when an entry of that id is seen to exist.
Source: Apache ``ReadLastConfirmedAndEntryOp``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from bookie_server.wire.digest import Digest
from bookie_server.wire.messages import (
    LongPoll,
    ReadLacReply,
    ReadLacRequest,
    ReadReply,
    ReadRequest,
    Status,
)
from bookie_server.wire.record import MalformedRecordsError, Run, parse_run
from bookkeeper_metadata.errors import MetadataUnavailableError, NoSuchLedgerError
from bookkeeper_metadata.foundation.errors import BookKeeperError
from bookkeeper_metadata.foundation.tasks import end_tasks
from bookkeeper_metadata.model import NO_ENTRY_ID, LedgerMetadata, Versioned
from spark_bookkeeper.ledger.context import LedgerContext
from spark_bookkeeper.ledger.fetch import FragmentFetcher, verified_runs
from spark_bookkeeper.ledger.last_confirmed import LacEvidence, believable_claim, lac_evidence
from spark_bookkeeper.ledger.protocol.quorum import QuorumConfig

_GRACE_S = 0.5
"""How long an answer may take beyond the time its bookie was asked to hold it back."""
_PAUSE_S = 0.1
"""Pause between rounds in which every bookie answered at once and none had news: all are down, the
ledger is fenced and not closed yet, or a bookie claims a LAC that is not true."""
_STAY_S = 5.0
"""Longest time to ask one bookie: it may be far behind, and catch up no faster than we read."""
_SIZE_BYTES_AGAIN = 64 * 1024
"""What is asked for first behind an answer that did not come, and twice as much behind each that did."""
_DOUBT = 3
"""After this many answers without news the metadata is read, whatever its watch says."""
_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class News:
    """The ledger is confirmed up to ``last_add_confirmed``; ``runs`` are those of its
    entries that came with the answer: verified, consecutive, from the entry asked for on; maybe none.
    """

    last_add_confirmed: int
    runs: tuple[Run, ...]


class MetadataFollower:
    """The newest metadata of one ledger, and a signal for when there is a newer one."""

    def __init__(self, cluster: LedgerContext, ledger_id: int, known: Versioned) -> None:
        self._cluster = cluster
        self._ledger_id = ledger_id
        self._latest: Versioned | None = known
        self._changed = asyncio.Event()
        self._end: Callable[[], None] | None = None
        self._looking: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to watch; raises MetadataUnavailableError."""
        self._end = await self._cluster.ledgers.watch(self._ledger_id, self._learn)

    async def stop(self) -> None:
        """End the watch and a read under way. Idempotent."""
        if self._end is not None:
            self._end()
            self._end = None
        if self._looking is not None:
            await end_tasks([self._looking])

    def latest(self) -> Versioned:
        """The newest metadata known; :meth:`wait_for_change` then waits for something newer.

        Raises:
            NoSuchLedgerError: the ledger was deleted.
        """
        self._changed.clear()
        if self._latest is None:
            raise NoSuchLedgerError(self._ledger_id)
        return self._latest

    async def wait_for_change(self) -> None:
        """Wait for something newer than :meth:`latest` returned."""
        await self._changed.wait()

    def look(self) -> None:
        """Start to read the metadata in the background, for a watch may be late."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look(), name="tail-metadata-look")

    async def _look(self) -> None:
        try:
            self._learn(await self._cluster.ledgers.read(self._ledger_id))
        except NoSuchLedgerError:
            self._learn(None)
        except MetadataUnavailableError as away:
            # Bookies go on answering meanwhile; the next doubt looks again.
            _LOGGER.debug("no look at the metadata. ledger_id=%d error=%s", self._ledger_id, away)

    def _learn(self, versioned: Versioned | None) -> None:
        latest = self._latest
        # The watch and a look may report in any order. After a deletion nothing is learned any
        # more: what is made under that id is another ledger.
        if versioned is None or (latest is not None and versioned.version > latest.version):
            self._latest = versioned
            self._changed.set()


class IdleTime:
    """How long a tail may go without an entry: ``timeout_s`` seconds from now, ``None`` for ever."""

    def __init__(self, timeout_s: float | None) -> None:
        self._timeout_s = timeout_s
        self._until_s: float | None = None
        self.restart()

    def restart(self) -> None:
        """An entry came."""
        if self._timeout_s is not None:
            self._until_s = asyncio.get_running_loop().time() + self._timeout_s

    @property
    def left_s(self) -> float | None:
        """Seconds, at least 0; ``None``: for ever."""
        if self._until_s is None:
            return None
        return max(0.0, self._until_s - asyncio.get_running_loop().time())

    @property
    def is_over(self) -> bool:
        return self.left_s == 0.0


class NewsPoller:
    """Long polls for one reader."""

    def __init__(
        self,
        cluster: LedgerContext,
        ledger_id: int,
        *,
        digest: Digest,
        fetcher: FragmentFetcher,
        turn: int,
    ) -> None:
        self._cluster = cluster
        self._ledger_id = ledger_id
        self._digest = digest
        self._fetcher = fetcher
        self._turn = turn
        self._patience_s = cluster.settings.long_poll_timeout_ms / 1000 + _GRACE_S
        self._size_bytes = cluster.settings.read_size_bytes
        self._prepared: tuple[str, ...] = ()
        self._fruitless = 0
        self._round_began_s = 0.0
        self._turn_began_s = 0.0

    async def ask(self, metadata: LedgerMetadata, next_entry: int) -> News | None:
        """News of ``next_entry`` and what follows; ``None`` when the one bookie asked had none."""
        quorum = QuorumConfig.of(metadata)
        ensemble = metadata.last_fragment.ensemble
        await self._prepare(ensemble)
        now_s = asyncio.get_running_loop().time()
        if self._fruitless % len(ensemble) == 0:
            if self._fruitless and now_s - self._round_began_s < _PAUSE_S:
                await asyncio.sleep(_PAUSE_S)
            self._round_began_s = now_s
        if now_s - self._turn_began_s >= _STAY_S:
            self._next_turn(now_s)
        # Of a striped ledger, ask a bookie that also stores the next entry: it learns first that this
        # one is confirmed.
        stripe = next_entry + 1 if quorum.is_striped else 0
        bookie_id = ensemble[(stripe + self._turn) % len(ensemble)]
        poll = LongPoll(
            previous_lac=next_entry - 1,
            timeout_ms=self._cluster.settings.long_poll_timeout_ms,
            size_bytes_max=self._size_bytes,
        )
        reply = await self._answer(bookie_id, poll)
        if reply.status is not Status.UNREACHABLE:
            most = self._cluster.settings.read_size_bytes
            self._size_bytes = min(most, max(_SIZE_BYTES_AGAIN, 2 * self._size_bytes))
        news = await self._news_in(reply, metadata, next_entry)
        if news is None and reply.explicit_lac is not None:
            # It sent only a packet, which cannot be believed: ask for its newest entry instead.
            reply = await self._answer(bookie_id, None)
            news = await self._news_in(reply, metadata, next_entry)
        if news is None:
            self._next_turn(asyncio.get_running_loop().time())
            self._fruitless += 1
        else:
            self._fruitless = 0
        return news

    @property
    def is_in_doubt(self) -> bool:
        """Whether some answers in a row had no news: time to look at the metadata."""
        return self._fruitless > 0 and self._fruitless % _DOUBT == 0

    async def _prepare(self, ensemble: tuple[str, ...]) -> None:
        """Look up addresses for a new ensemble, or when in doubt; not for every poll."""
        if ensemble == self._prepared and not self.is_in_doubt:
            return
        # Noted before it is done: with the metadata service away, not every poll should wait for
        # it.
        self._prepared = ensemble
        try:
            await self._cluster.prepare(ensemble)
        except MetadataUnavailableError as away:
            # Bookies with a known address can still be asked.
            _LOGGER.debug("no addresses looked up. ledger_id=%d error=%s", self._ledger_id, away)

    def _next_turn(self, now_s: float) -> None:
        self._turn += 1
        self._turn_began_s = now_s

    async def _answer(self, bookie_id: str, poll: LongPoll | None) -> ReadLacReply:
        client = self._cluster.client(bookie_id)
        try:
            async with asyncio.timeout(self._patience_s):
                reply = await client.read_lac(ReadLacRequest(self._ledger_id, long_poll=poll))
        except TimeoutError:
            # A bookie that hangs is left for the next one, like any that brings no news.
            reply = ReadLacReply(Status.UNREACHABLE)
            # Or it is the link: entries that it did not bring in time it would not bring the next time either. Of the
            # next poll the LAC is enough, for reads of what is confirmed have more patience.
            self._size_bytes = 0
        if reply.status is Status.UNREACHABLE:
            self._cluster.connections.note_silence()
        return reply

    async def _news_in(
        self, reply: ReadLacReply, metadata: LedgerMetadata, next_entry: int
    ) -> News | None:
        evidence = lac_evidence(reply, self._ledger_id, self._digest)
        runs = self._records_in(reply, next_entry)
        # Entries that came along make an explicit LAC believable just as a newest entry does.
        held = [LacEvidence(Status.OK, last_entry=run.last_entry) for run in runs]
        lac = max(evidence.proved, believable_claim([evidence, *held]))
        if lac < next_entry and evidence.claimed >= next_entry:
            # A bookie that is behind, or stores other entries, may have been sent a LAC beyond its own.
            if not await self._exists(metadata, evidence.claimed):
                return None
            lac = evidence.claimed
        if lac < next_entry:
            return None
        return News(lac, _consecutive(runs, next_entry, lac))

    def _records_in(self, reply: ReadLacReply, next_entry: int) -> list[Run]:
        if not reply.records:
            return []
        try:
            run = parse_run(reply.records)
        except MalformedRecordsError:
            return []
        wanted = ReadRequest(
            ledger_id=self._ledger_id, first_entry=next_entry, last_entry=run.last_entry
        )
        return verified_runs(ReadReply((run,), (), NO_ENTRY_ID), wanted, self._digest)[0]

    async def _exists(self, metadata: LedgerMetadata, entry_id: int) -> bool:
        fragment = metadata.fragment_of(entry_id)
        try:
            await self._fetcher.fetch(fragment, entry_id, entry_id, self._turn)
        except BookKeeperError:
            # Not readable now, which proves neither that it exists nor that it does not.
            return False
        return True


def _consecutive(runs: list[Run], next_entry: int, last_entry: int) -> tuple[Run, ...]:
    """The part of ``runs`` that follows from ``next_entry`` without a gap, up to ``last_entry``."""
    taken: list[Run] = []
    for run in runs:
        part = run.between(next_entry, last_entry)
        if part is None or part.first_entry != next_entry:
            break
        # A bookie of a striped ledger leaves gaps; what lies behind one has to wait for another
        # bookie.
        if not isinstance(part.entry_ids, range) or part.entry_ids.step != 1:
            count = 1
            while count < len(part) and part.entry_ids[count] == next_entry + count:
                count += 1
            taken.append(part.slice(0, count))
            break
        taken.append(part)
        next_entry = part.last_entry + 1
    return tuple(taken)


async def wait_for_news(
    follower: MetadataFollower,
    poller: NewsPoller,
    metadata: LedgerMetadata,
    next_entry: int,
    idle: IdleTime,
) -> News | None:
    """Poll until a bookie has news; ``None`` when newer metadata came first or the time is over."""
    loop = asyncio.get_running_loop()
    changed = loop.create_task(follower.wait_for_change(), name="tail-metadata-changed")
    asking: asyncio.Task[News | None] | None = None
    try:
        while not changed.done() and not idle.is_over:
            asking = asking or loop.create_task(poller.ask(metadata, next_entry), name="tail-poll")
            await asyncio.wait(
                (asking, changed), timeout=idle.left_s, return_when=asyncio.FIRST_COMPLETED
            )
            if asking.done():
                news, asking = asking.result(), None
                if news is not None:
                    return news
                if poller.is_in_doubt:
                    follower.look()
        return None
    finally:
        await end_tasks(task for task in (asking, changed) if task is not None)
