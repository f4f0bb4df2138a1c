"""The product's recovery of one ledger, its bookies' answers given in words."""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable
from random import Random
from typing import Any, cast

from bookie_server.client.interface import BookieClient
from bookie_server.wire.messages import (
    EncodedSection,
    IdRange,
    ReadLacReply,
    ReadLacRequest,
    ReadReply,
    ReadRequest,
    Status,
)
from bookie_server.wire.packaging import encode_records
from bookie_server.wire.record import parse_run
from bookkeeper_metadata.bookies import BookieRegistry
from bookkeeper_metadata.cluster import initialize
from bookkeeper_metadata.endpoints import BOOKIE_ENDPOINT, GRPC, BookieServiceInfo, Endpoint
from bookkeeper_metadata.foundation.errors import BookKeeperError
from bookkeeper_metadata.ledgers import LedgerStore
from bookkeeper_metadata.model import LedgerMetadata, Versioned
from bookkeeper_metadata.serde import parse_metadata
from bookkeeper_metadata.store.memory import MemoryStore
from bookkeeper_metadata.store.memory_tree import MemoryTree
from spark_bookkeeper.ledger.context import LedgerContext
from spark_bookkeeper.ledger.recovery import recover_ledger
from spark_bookkeeper.settings import ClientSettings
from tests.simulation.rules.samples import DIGEST, LEDGER, created
from tests.simulation.transcripts.desk import CoroutineDesk, Lines, SpokenStore, span

ROOT = "/ledgers"
WINDOW_ENTRIES = 3
SPARES = 2


class RecoveryDesk(CoroutineDesk):
    """A ledger its writer left open, and somebody who closes it."""

    def __init__(self, words: list[str]) -> None:
        super().__init__()
        metadata = created(words[0])
        tree = MemoryTree()
        self.waiting: dict[str, deque[Callable[[Any], None]]] = defaultdict(deque)
        """By command and bookie, who waits for that answer."""
        self.run(_found(MemoryStore(tree), metadata))
        self._cluster = LedgerContext(
            SpokenStore(tree, self._say, _shown),
            ROOT,
            settings=ClientSettings(recovery_window_entries=WINDOW_ENTRIES),
            random=Random(0),
            make_client=lambda bookie_id, *_: cast(BookieClient, _Bookie(bookie_id, self)),
        )
        self.asked: dict[str, ReadRequest] = {}

    def perform(self, name: str, words: list[str]) -> Lines:
        match name:
            case "begin":
                task = self.loop.create_task(recover_ledger(self._cluster, LEDGER, b""))
                task.add_done_callback(self._ended)
            case "lac":
                self._answer(name, words[0], _lac_reply(words[1]))
            case "read":
                self._answer(name, words[0], _read_reply(self.asked[words[0]], words[1:]))
            case "stored":
                self._answer(name, words[0], Status[words[1]])
            case _:
                raise AssertionError(f"a recovery knows no {name}")
        self.go_on()
        return self.taken()

    async def ask(self, what: str, bookie_id: str, line: str) -> Any:
        """Send a request; the answer is a command's."""
        self.lines.append(line)
        reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.waiting[f"{what} {bookie_id}"].append(reply.set_result)
        try:
            return await reply
        except asyncio.CancelledError:
            self.waiting[f"{what} {bookie_id}"].remove(reply.set_result)
            self.lines.append(f"wait for {bookie_id} no longer")
            raise

    def _answer(self, what: str, bookie_id: str, answer: object) -> None:
        waiting = self.waiting[f"{what} {bookie_id}"]
        assert waiting, f"nobody waits for {what} of {bookie_id}"
        waiting.popleft()(answer)

    def _say(self, line: str) -> None:
        # One line for a look at all bookies, not one for each.
        if not line.startswith(f"get {ROOT}/available/"):
            self.lines.append(line)

    def _ended(self, task: asyncio.Task[Versioned]) -> None:
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            metadata = task.result().metadata
            self.lines.append(f"recovered: {_described(metadata)}, {metadata.length} bytes")
        else:
            assert isinstance(error, BookKeeperError), error
            self.lines.append(f"fails: {error}")


class _Bookie:
    """What a recovery needs of a connection."""

    def __init__(self, bookie_id: str, desk: RecoveryDesk) -> None:
        self.bookie_id = bookie_id
        self._desk = desk

    def write(self, section: EncodedSection, done: Callable[[Status], None]) -> None:
        entries = span(range(section.first_entry, section.last_entry + 1))
        kind = "recovery add" if section.is_recovery else "add"
        self._desk.lines.append(f"{kind} {self.bookie_id} entries {entries}")
        self._desk.waiting[f"stored {self.bookie_id}"].append(done)

    async def read(self, request: ReadRequest) -> ReadReply:
        self._desk.asked[self.bookie_id] = request
        entries = span(range(request.first_entry, request.last_entry + 1))
        line = f"read {self.bookie_id} entries {entries}{_fences(request.is_fencing)}"
        reply: ReadReply = await self._desk.ask("read", self.bookie_id, line)
        return reply

    async def read_lac(self, request: ReadLacRequest) -> ReadLacReply:
        line = f"read the LAC of {self.bookie_id}{_fences(request.is_fencing)}"
        reply: ReadLacReply = await self._desk.ask("lac", self.bookie_id, line)
        return reply


def _fences(is_fencing: bool) -> str:
    return " and fence" if is_fencing else ""


async def _found(store: MemoryStore, metadata: LedgerMetadata) -> None:
    await initialize(store, ROOT, random=Random(0))
    registry = BookieRegistry(store, ROOT)
    for i in range(metadata.ensemble_size + SPARES):
        endpoint = Endpoint(BOOKIE_ENDPOINT, f"b{i}", 3181, GRPC)
        await registry.register(f"b{i}", BookieServiceInfo((endpoint,)))
    await LedgerStore(store, ROOT, random=Random(0)).create(metadata, ledger_id=LEDGER)


def _lac_reply(word: str) -> ReadLacReply:
    if word == "empty":
        return ReadLacReply(Status.OK)
    if word in Status.__members__:
        return ReadLacReply(Status[word])
    return ReadLacReply(Status.OK, _record(int(word) + 1))


def _read_reply(request: ReadRequest, words: list[str]) -> ReadReply:
    held = [int(word) for word in words if word.isdecimal()]
    status = Status.NO_ENTRY if held else Status[words[0]]
    asked = range(request.first_entry, request.last_entry + 1)
    assert set(held) <= set(asked), f"{held} is no answer to {asked}"
    missing = [IdRange(e, e, status) for e in asked if e not in held]
    return ReadReply(tuple(parse_run(_record(e)) for e in held), tuple(missing), -1)


def _record(entry_id: int) -> bytes:
    """An entry of one byte that knows all before it to be confirmed."""
    payload = [bytes([65 + entry_id])]
    confirmed, length = entry_id - 1, entry_id
    return b"".join(
        encode_records(
            DIGEST, LEDGER, entry_id, payload, last_add_confirmed=confirmed, length_before=length
        )
    )


def _shown(path: str, value: bytes) -> str:
    if path.startswith(f"{ROOT}/available") or path == f"{ROOT}/LAYOUT":
        return path
    return "the metadata" + (f": {_described(parse_metadata(value, path))}" if value else "")


def _described(metadata: LedgerMetadata) -> str:
    fragments = (
        f"{' '.join(f.ensemble)} from entry {f.first_entry} on" for f in metadata.fragments
    )
    end = f" at {metadata.last_entry}" if metadata.is_closed else ""
    return f"{metadata.state.name}{end}, {'; '.join(fragments)}"
