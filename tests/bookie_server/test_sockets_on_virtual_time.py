"""The socket carrier, both ends of it, over byte streams that cut, delay, lose and break: on virtual time."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import NamedTuple, cast

import numpy as np
import pytest
from trustme import KeyType

from bookie_server.bookie import Bookie
from bookie_server.carrier.byte_stream import ByteStream
from bookie_server.carrier.connection import Connection, ConnectionEndedError
from bookie_server.carrier.taking import receive_untaken
from bookie_server.carrier.tls_stream import secure
from bookie_server.client.settings import ConnectionSettings
from bookie_server.client.socket_client import SocketBookieClient
from bookie_server.core.effects import ReplyTo
from bookie_server.memory.budget import MemoryBudget, Room
from bookie_server.observing.measures import BookieMeasures
from bookie_server.serving.server_tls import ServerTls
from bookie_server.serving.service import BookieService
from bookie_server.serving.socket_service import SocketService
from bookie_server.wire.envelope import Head, Kind, encode_head
from bookie_server.wire.limits import FRAME_SIZE_MAX
from bookie_server.wire.messages import (
    BookieInfo,
    IdRange,
    ReadLacReply,
    ReadLacRequest,
    ReadRequest,
    Section,
    Status,
    StoredReply,
)
from bookkeeper_metadata.foundation.tls.contexts import Tls
from tests.doubles.byte_streams import GIVES_UP_S, SimStream, connected, send_all
from tests.doubles.certificates import HOST, Authority, serving_with
from tests.doubles.records import encoded_section, records
from tests.doubles.virtual_time import on_virtual_time

RUNS = 120
ADDS = 60
LEDGER = 7
MESSAGE_SIZE = 32 * 1024
TIMEOUT_S = 5
SETTINGS = ConnectionSettings(
    add_timeout_ms=TIMEOUT_S * 1_000,
    read_timeout_ms=TIMEOUT_S * 1_000,
    reconnect_timeout_ms=3_000,
    frame_size_bytes_target=4_096,
    frame_size_bytes_max=32 * 1024,
)


@dataclass
class Shelf:
    """What a bookie is to its service: it keeps what it takes, and answers after a while."""

    random: Random
    adds_in_progress: MemoryBudget = field(
        default_factory=lambda: MemoryBudget(2 * FRAME_SIZE_MAX, patience_s=1)
    )
    reads_in_progress: MemoryBudget = field(
        default_factory=lambda: MemoryBudget(2 * FRAME_SIZE_MAX, patience_s=1)
    )
    measures: BookieMeasures = field(default_factory=BookieMeasures)
    stored: dict[int, bytes] = field(default_factory=dict)
    """Records by entry id."""

    @property
    def has_room(self) -> bool:
        return self.random.random() < 0.7

    def call_when_answered(self, call: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_later(self.random.choice((0, 0, 0.01)), call)

    async def wait_for_room(self) -> None:
        await asyncio.sleep(self.random.choice((0, 0, 0.01)))

    def add(self, section: Section, to: ReplyTo, client: str) -> None:
        def answer() -> None:
            for index, entry_id in enumerate(section.run.entry_ids):
                record = bytes(section.run.record(index))
                assert self.stored.setdefault(entry_id, record) == record
            to(Status.OK)

        asyncio.get_running_loop().call_later(self.random.uniform(0, 0.05), answer)

    async def read(self, request: ReadRequest, room: Room) -> StoredReply:
        await asyncio.sleep(self.random.uniform(0, 0.05))
        record = self.stored.get(request.first_entry)
        missing = (IdRange(request.first_entry, request.first_entry, Status.NO_ENTRY),)
        return StoredReply((record,), (), -1) if record else StoredReply((), missing, -1)

    async def read_lac(self, request: ReadLacRequest, room: Room) -> ReadLacReply:
        await asyncio.sleep(self.random.uniform(0, 0.05))
        return ReadLacReply(Status.OK, self.stored.get(0))


class BothEnds(NamedTuple):
    """How a client and a bookie speak TLS."""

    client: Tls
    server: ServerTls


class Scene:
    """A client and a bookie, and the connections between them."""

    def __init__(self, seed: int, tls: BothEnds | None = None) -> None:
        """With ``tls`` everything goes over it, and both ends show certificates."""
        self.random = Random(seed)
        self.shelf = Shelf(self.random)
        bookie = cast(Bookie, self.shelf)
        self._client_tls = tls.client if tls else None
        self.service = SocketService(
            BookieService(bookie, BookieInfo("b:1", "cluster"), "/"),
            connections_max=100,
            tls=tls.server if tls else None,
        )
        self.streams: list[SimStream] = []
        self.client = SocketBookieClient("b:1", self._connect, SETTINGS, "cluster", self.random)
        self.told: Counter[int] = Counter()
        self.answers: dict[int, Status] = {}

    async def _connect(self) -> ByteStream:
        await asyncio.sleep(self.random.uniform(0, 0.1))
        if not self.random.randrange(8):
            raise ConnectionRefusedError("it is being started")
        ours, theirs = connected(self.random)
        self.streams.append(ours)
        self.service.serve(theirs)
        if self._client_tls is None:
            return ours
        return await secure(ours, self._client_tls.client_context(), HOST)

    def add(self, entry_id: int) -> None:
        size = self.random.choice((10, 1_000, 20_000))
        section = encoded_section([bytes([entry_id % 256]) * size], entry_id)

        def done(status: Status) -> None:
            self.told[entry_id] += 1
            self.answers[entry_id] = status

        self.client.write(section, done)

    async def disturb(self) -> None:
        """Break connections, or have one side hear nothing any more."""
        while True:
            await asyncio.sleep(self.random.uniform(0, 0.5))
            if not self.streams:
                continue
            stream = self.random.choice(self.streams)
            if self.random.randrange(4):
                stream.break_off()
            elif stream._other is not None:
                self.random.choice((stream, stream._other)).fall_silent()

    async def close(self) -> None:
        await self.client.close()
        await self.service.stop()


async def breaks_off_in_a_message(how: str, *, at_once: bool) -> None:
    """What had come of it stayed in memory until Python looked for cycles: a frame of each client that went."""
    ours, theirs = connected(Random(0))
    sender, receiver = Connection(ours), Connection(theirs)
    memory: list[np.ndarray] = [np.empty(MESSAGE_SIZE, np.uint8)]
    is_there = weakref.ref(memory[0])
    if at_once:
        taking = receive_untaken(receiver, lambda head: memory.pop().data, lambda body: True)
        filling: asyncio.Task[object] = asyncio.create_task(taking)
        await send_all(ours, encode_head(Head(Kind.FRAME, MESSAGE_SIZE)) + bytes(MESSAGE_SIZE // 2))
    else:
        filling = asyncio.create_task(receiver.fill(memory.pop().data))
        sender.send(Kind.FRAME, (bytes(MESSAGE_SIZE // 2),))
    await asyncio.sleep(1)
    if how == "closed":
        receiver.close()
    else:
        ours.close() if how == "ended" else ours.break_off()
    with pytest.raises(ConnectionEndedError):
        await filling
    del filling
    await asyncio.sleep(1)
    assert is_there() is None


async def adds_are_answered_once(seed: int, tls: BothEnds | None = None) -> None:
    scene = Scene(seed, tls)
    disturbing = asyncio.create_task(scene.disturb())
    for entry_id in range(ADDS):
        scene.add(entry_id)
        await asyncio.sleep(scene.random.choice((0, 0, 0.01, 0.2)))
    await asyncio.sleep(TIMEOUT_S + 0.1)
    assert scene.told == Counter(range(ADDS)), "each add is answered, and once"
    for entry_id, status in scene.answers.items():
        assert status in (Status.OK, Status.UNREACHABLE)
        assert status is Status.UNREACHABLE or entry_id in scene.shelf.stored
    disturbing.cancel()

    await asyncio.sleep(GIVES_UP_S + 1)
    scene.add(ADDS)
    await asyncio.sleep(TIMEOUT_S + 0.1)
    assert scene.answers[ADDS] is Status.OK, "when all is well again, it goes on"
    await scene.close()
    used = scene.shelf.adds_in_progress.used_bytes, scene.shelf.reads_in_progress.used_bytes
    assert used == (0, 0), "what left gave its room back"


async def requests_have_sound_answers(seed: int, tls: BothEnds | None = None) -> None:
    scene = Scene(seed, tls)
    expected = {id: records([b"x" * 1_000 * id], id) for id in range(20)}
    scene.shelf.stored.update(expected)
    disturbing = asyncio.create_task(scene.disturb())

    async def read(entry_id: int) -> Status:
        await asyncio.sleep(scene.random.uniform(0, 3))
        asked = ReadRequest(ledger_id=LEDGER, first_entry=entry_id, last_entry=entry_id)
        try:
            async with asyncio.timeout(scene.random.choice((0.02, 60, 60))):
                reply = await scene.client.read(asked)
        except TimeoutError:
            return Status.UNREACHABLE
        if reply.runs:
            assert bytes(reply.runs[0].data) == expected[entry_id]
            return Status.OK
        return reply.missing[0].status

    async def read_lac() -> Status:
        await asyncio.sleep(scene.random.uniform(0, 3))
        reply = await scene.client.read_lac(ReadLacRequest(LEDGER))
        assert reply.status is Status.UNREACHABLE or reply.last_entry == expected[0]
        return reply.status

    asked = [read(scene.random.randrange(25)) for _ in range(40)] + [read_lac() for _ in range(20)]
    found = Counter(await asyncio.gather(*asked))
    assert set(found) <= {Status.OK, Status.NO_ENTRY, Status.UNREACHABLE}
    disturbing.cancel()

    await asyncio.sleep(GIVES_UP_S + 1)
    again = [await read_lac() for _ in range(10)]
    assert Status.OK in again, "when all is well again, it goes on"
    await scene.close()
    assert scene.shelf.reads_in_progress.used_bytes == 0


@pytest.mark.parametrize("part", range(4))
def test_an_add_is_answered_once_whatever_becomes_of_its_connection(part: int) -> None:
    for seed in range(part * RUNS, (part + 1) * RUNS):
        on_virtual_time(adds_are_answered_once(seed))


@pytest.mark.parametrize("part", range(2))
def test_a_request_has_one_sound_answer_whatever_becomes_of_its_connection(part: int) -> None:
    for seed in range(part * RUNS, (part + 1) * RUNS):
        on_virtual_time(requests_have_sound_answers(seed))


@pytest.mark.parametrize("part", range(2))
def test_all_of_that_holds_over_tls(part: int, tmp_path: Path) -> None:
    # Signatures of RSA have one size, so that a seed says when what arrives.
    authority = Authority(tmp_path, KeyType.RSA)
    tls = BothEnds(Tls(authority.files("task")), serving_with(authority.files("bookie")))
    for seed in range(part * RUNS // 2, (part + 1) * RUNS // 2):
        on_virtual_time(adds_are_answered_once(seed, tls))
        on_virtual_time(requests_have_sound_answers(seed, tls))


@pytest.mark.parametrize("at_once", [True, False], ids=["at_once", "by_a_task"])
@pytest.mark.parametrize("how", ["closed", "ended", "broken"])
def test_what_came_of_a_message_is_let_go_with_its_connection(how: str, at_once: bool) -> None:
    gc.disable()
    try:
        on_virtual_time(breaks_off_in_a_message(how, at_once=at_once))
    finally:
        gc.enable()
