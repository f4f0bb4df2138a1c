"""Ledgers without a protocol: real metadata, entries in memory, processes that die.

What is stored is in one :class:`SharedBookies`; each process has :class:`InMemoryLedgers` over a
session of its own. Ledgers obey the protocol's rules and nothing else of it: a fenced ledger takes
no entry, a recovery closes behind the last entry stored, a writer closes behind the last one
acknowledged.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from bookkeeper_metadata.foundation.errors import BookKeeperError
from bookkeeper_metadata.ledgers import ExtraOperations, LedgerStore
from bookkeeper_metadata.model import Fragment, LedgerMetadata, Stop, Transform, Versioned
from bookkeeper_metadata.store.memory import MemoryStore
from spark_bookkeeper.ledger.entry import Entry
from spark_bookkeeper.ledger.errors import LedgerClosedError, LedgerFencedError, LedgerRecoveryError
from spark_bookkeeper.ledger.pending_adds import AppendCallback
from spark_bookkeeper.ledger.protocol.transitions import closed_by_writer, marked_in_recovery
from spark_bookkeeper.log.format.model import LogSettings
from tests.doubles.stores import LoseNth
from tests.doubles.waits import pass_turns

MAYBE_TURNS = 5


@dataclass
class StoredLedger:
    """What bookies hold of one ledger."""

    payloads: list[bytes] = field(default_factory=list)
    is_fenced: bool = False
    acknowledged: int = 0
    """Entries whose writer knows that they are stored."""


class SharedBookies:
    """What is stored, for any number of processes; a fenced ledger takes no entry."""

    def __init__(self) -> None:
        self.ledgers: defaultdict[int, StoredLedger] = defaultdict(StoredLedger)
        self.is_answering = asyncio.Event()
        self.is_answering.set()
        self.is_undecidable = False
        """Recoveries find too few bookies."""

    def store(self, ledger_id: int, payload: bytes) -> bool:
        """Whether the ledger took it."""
        ledger = self.ledgers[ledger_id]
        if not ledger.is_fenced:
            ledger.payloads.append(payload)
        return not ledger.is_fenced


class Appender:
    """A ledger's writer: entries take turns to arrive, and turns to be acknowledged."""

    payload_size_max = 1_000

    def __init__(self, ledgers: InMemoryLedgers, ledger_id: int, versioned: Versioned) -> None:
        self.ledger_id = ledger_id
        self.on_release: Callable[[int], None] | None = None
        self._ledgers = ledgers
        self._versioned = versioned
        self._inbox: list[bytes] = []
        self._untold: list[AppendCallback] = []
        self._serving: asyncio.Task[None] | None = None
        self._error: BookKeeperError | None = None
        self._is_closed = False

    def push(self, payloads: Sequence[bytes], complete: AppendCallback) -> None:
        if self._error is not None:
            raise self._error
        if self._is_closed:
            raise LedgerClosedError(self.ledger_id)
        self._inbox.extend(payloads)
        self._untold.append(complete)
        if self._serving is None or self._serving.done():
            self._serving = asyncio.create_task(self._serve())

    async def close(self) -> None:
        self._is_closed = True
        if self._serving is not None:
            await asyncio.wait({self._serving})
        await self._ledgers.alive()
        ledger_id, stored = self.ledger_id, self._ledgers.stored(self.ledger_id)
        last_entry = stored.acknowledged - 1
        length = sum(map(len, stored.payloads[: stored.acknowledged]))
        await self._ledgers.update(
            ledger_id, lambda now: closed_by_writer(ledger_id, now, last_entry, length, self._error)
        )

    def abandon(self, error: BookKeeperError) -> None:
        self._fail(error)

    async def _serve(self) -> None:
        while self._inbox:
            await self._ledgers.turns()
            await self._ledgers.alive()
            await self._ledgers.bookies.is_answering.wait()
            stored: list[bytes] = []
            for _ in range(self._ledgers.random.choice((1, 1, 2, 3))):
                if self._error is not None or not self._inbox:
                    break
                payload = self._inbox.pop(0)
                if not self._ledgers.bookies.store(self.ledger_id, payload):
                    self._fail(LedgerFencedError(self.ledger_id))
                    return
                stored.append(payload)
                await self._ledgers.turns()
                await self._ledgers.alive()
            # Stored, and it may never be known: a crash here leaves entries nobody was told of.
            for payload in stored:
                if self._error is None:
                    self._acknowledge(payload)

    def _acknowledge(self, payload: bytes) -> None:
        stored = self._ledgers.stored(self.ledger_id)
        stored.acknowledged += 1
        last_entry = stored.acknowledged - 1
        self._untold = [complete for complete in self._untold if not complete(last_entry, None)]
        if self.on_release is not None:
            self.on_release(len(payload))

    def _fail(self, error: BookKeeperError) -> None:
        self._error = error
        self._inbox.clear()
        untold, self._untold = self._untold, []
        for complete in untold:
            complete(-1, error)


class Entries:
    """A ledger read: closed to its end, open to what is acknowledged."""

    def __init__(self, ledgers: InMemoryLedgers, ledger_id: int, metadata: LedgerMetadata) -> None:
        self._ledgers = ledgers
        self._ledger_id = ledger_id
        self._metadata = metadata

    @property
    def last_add_confirmed(self) -> int:
        if self._metadata.is_closed:
            return self._metadata.last_entry
        return self._ledgers.stored(self._ledger_id).acknowledged - 1

    async def batches(self, first_entry: int, last_entry: int) -> AsyncGenerator[list[Entry], None]:
        stored = self._ledgers.stored(self._ledger_id).payloads
        for first in range(first_entry, last_entry + 1, 2):
            await asyncio.sleep(0)
            await self._ledgers.metadata(self._ledger_id)
            yield [
                Entry(self._ledger_id, each, 0, memoryview(stored[each]))
                for each in range(first, min(first + 1, last_entry) + 1)
            ]

    async def tail(
        self, first_entry: int, *, timeout_s: float | None
    ) -> AsyncGenerator[list[Entry], None]:
        loop = asyncio.get_running_loop()
        deadline_s = None if timeout_s is None else loop.time() + timeout_s
        while True:
            self._metadata = await self._ledgers.metadata(self._ledger_id)
            last_entry = self.last_add_confirmed
            async for entries in self.batches(first_entry, last_entry):
                yield entries
            first_entry = max(first_entry, last_entry + 1)
            is_late = deadline_s is not None and loop.time() >= deadline_s
            if self._metadata.is_closed or is_late:
                return
            await asyncio.sleep(0)


class InMemoryLedgers:
    """The ledgers as one process sees them: metadata over its session, entries in shared bookies."""

    def __init__(
        self, store: MemoryStore, root: str, bookies: SharedBookies, random: Random
    ) -> None:
        self.store = store
        self.bookies = bookies
        self.random = random
        self.is_dead = False
        self._metadata = LedgerStore(store, root, random=random)

    def stored(self, ledger_id: int) -> StoredLedger:
        return self.bookies.ledgers[ledger_id]

    async def metadata(self, ledger_id: int) -> LedgerMetadata:
        return (await self._metadata.read(ledger_id)).metadata

    async def turns(self) -> None:
        await pass_turns(self.random.randrange(MAYBE_TURNS))

    async def alive(self) -> None:
        """The process was killed: whatever runs in it stops here for ever."""
        if self.is_dead or (
            isinstance(self.store.fault, LoseNth) and self.store.fault.died.is_set()
        ):
            await asyncio.Event().wait()

    async def update(self, ledger_id: int, transform: Transform[BookKeeperError]) -> LedgerMetadata:
        outcome = await self._metadata.update(ledger_id, transform)
        if isinstance(outcome, Stop):
            raise outcome.reason
        return outcome.metadata

    async def fence(self, ledger_id: int) -> None:
        """Recover a ledger: fenced first, closed behind whatever was stored by then."""
        if (await self.metadata(ledger_id)).is_closed:
            return

        if (await self.update(ledger_id, marked_in_recovery)).is_closed:
            return
        if self.bookies.is_undecidable:
            raise LedgerRecoveryError(ledger_id, "too few bookies answered")
        stored = self.stored(ledger_id)
        stored.is_fenced = True
        await self.turns()
        last_entry, length = len(stored.payloads) - 1, sum(map(len, stored.payloads))
        await self.update(
            ledger_id, lambda now: now if now.is_closed else now.closed(last_entry, length)
        )

    async def create(
        self,
        settings: LogSettings,
        *,
        password: bytes,
        custom_metadata: Mapping[str, bytes],
        extra_operations: ExtraOperations,
    ) -> Appender:
        metadata = LedgerMetadata(
            ensemble_size=1,
            write_quorum=1,
            ack_quorum=1,
            fragments=(Fragment(0, ("b0:1",)),),
            password=password,
            custom_metadata=dict(custom_metadata),
        )
        ledger_id, versioned = await self._metadata.create(
            metadata, extra_operations=extra_operations
        )
        return Appender(self, ledger_id, versioned)

    async def open(self, ledger_id: int, password: bytes) -> Entries:
        return Entries(self, ledger_id, await self.metadata(ledger_id))

    async def delete(self, ledger_id: int) -> None:
        await self._metadata.delete(ledger_id)
        self.stored(ledger_id).payloads = []
