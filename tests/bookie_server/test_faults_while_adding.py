"""Adds that are taken and answered in the callback they come by: what goes wrong there is one client's, and nothing is left."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from bookie_server.bookie import Bookie
from bookie_server.carrier.connection import Connection
from bookie_server.carrier.sockets import SocketStream
from bookie_server.client.settings import ConnectionSettings
from bookie_server.client.socket_client import over_tcp
from bookie_server.core.effects import ReplyTo
from bookie_server.memory.frames import Frame
from bookie_server.serving import adds
from bookie_server.wire import add_frames
from bookie_server.wire.buffer import Buffer
from bookie_server.wire.envelope import Kind, Purpose
from bookie_server.wire.messages import Section, SectionReply, Status
from tests.doubles.raw_sockets import RawPeer, message
from tests.doubles.records import encoded_section, write
from tests.doubles.served_sockets import (
    ServedSockets,
    serving_sockets,
    statuses_of,
    tasks_of_connections,
)
from tests.doubles.waits import pass_turns, until

pytestmark = pytest.mark.integration

UNLUCKY = 77
SETTINGS = ConnectionSettings(add_timeout_ms=60_000, reconnect_timeout_ms=60_000)


def frame(sections: Iterable[bytes]) -> bytes:
    return message(Kind.FRAME, b"".join(sections))


def port_of(peer: RawPeer) -> str:
    return f":{peer.socket.getsockname()[1]}"


async def others_are_served(served: ServedSockets) -> bool:
    client = over_tcp("b:1", served.address, SETTINGS, "cluster-1")
    status = await write(client, encoded_section([b"x"], ledger_id=1))
    await client.close()
    return status is Status.OK and not served.bookie.failed.done()


async def test_an_answer_that_cannot_be_made_ends_its_stream_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended the bookie: memory was short at the moment of one answer."""
    encode = add_frames.encode_write_reply

    def encode_or_fail(replies: Sequence[SectionReply]) -> bytes:
        if replies[0].ledger_id == UNLUCKY:
            raise MemoryError
        return encode(replies)

    monkeypatch.setattr(add_frames, "encode_write_reply", encode_or_fail)
    async with serving_sockets(tmp_path) as served:
        peer = await served.open(Purpose.ADDS)
        await peer.send(frame([encoded_section([b"x"], ledger_id=UNLUCKY).data]))
        assert await peer.receive() is None
        assert await others_are_served(served)
        await served.until_nothing_is_left()


async def test_a_socket_that_cannot_be_watched_ends_its_connection_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel has a limit of what it watches, and says so with ENOSPC."""
    watch, send = SocketStream.call_when_writable, SocketStream.send
    unlucky: list[str] = []

    def is_unlucky(stream: SocketStream) -> bool:
        return bool(unlucky) and stream.peer.endswith(unlucky[0])

    def watch_or_fail(self: SocketStream, call: object) -> None:
        if is_unlucky(self):
            raise OSError(28, "no space left on device")
        watch(self, call)  # type: ignore[arg-type]

    def send_nothing(self: SocketStream, buffers: Sequence[Buffer]) -> int:
        return 0 if is_unlucky(self) else send(self, buffers)

    monkeypatch.setattr(SocketStream, "call_when_writable", watch_or_fail)
    monkeypatch.setattr(SocketStream, "send", send_nothing)
    async with serving_sockets(tmp_path) as served:
        peer = await served.open(Purpose.ADDS)
        unlucky.append(port_of(peer))
        await peer.send(frame([encoded_section([b"x"], ledger_id=UNLUCKY).data]))
        assert await peer.receive() is None
        assert await others_are_served(served)
        await served.until_nothing_is_left()


async def test_a_frame_that_fails_in_the_middle_gives_its_room_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold, count = Frame.hold, 0

    def hold_or_fail(self: Frame) -> None:
        nonlocal count
        count += 1
        if count % 3 == 0:
            raise MemoryError
        hold(self)

    monkeypatch.setattr(Frame, "hold", hold_or_fail)
    async with serving_sockets(tmp_path) as served:
        for _ in range(3):
            peer = await served.open(Purpose.ADDS)
            await peer.send(frame(encoded_section([bytes(10_000)], each).data for each in range(3)))
            await peer.rest()
            peer.close()
        await until(lambda: not tasks_of_connections() and not served.used_bytes)


async def test_others_get_their_turn_in_the_middle_of_a_frame_that_is_taken_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sixteen sections of thousands of entries kept the loop for fifty milliseconds."""
    turn, turns = 0, list[int]()
    add = Bookie.add

    def add_and_note(self: Bookie, section: Section, to: ReplyTo, client: str = "") -> None:
        turns.append(turn)
        add(self, section, to, client)

    async def count_turns() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    monkeypatch.setattr(Bookie, "add", add_and_note)
    async with serving_sockets(tmp_path) as served:
        peer = await served.open(Purpose.ADDS)
        monkeypatch.setattr(adds, "STEP_S", -1.0)
        counting = asyncio.create_task(count_turns())
        ledgers = range(100, 116)
        sections = [encoded_section([b"x"], ledger_id=each).data for each in ledgers]
        await peer.send(frame(sections))
        answered = list[Status]()
        while len(answered) < len(sections):
            answered += statuses_of([await peer.take()])
        counting.cancel()
        assert set(answered) == {Status.OK}
        assert len(set(turns)) == len(sections), "each in a turn of its own"
        assert served.ledgers == set(ledgers)


async def test_an_answer_that_is_half_sent_when_its_client_has_said_all_is_sent_whole(
    tmp_path: Path,
) -> None:
    async with serving_sockets(tmp_path) as served:
        peer = await served.open(Purpose.ADDS, takes_little=True)
        ledger_id, first, sent = 2**62 + 7, 2**40, 0
        while not unsent_connections():
            sections = [
                encoded_section([b"x"], first + sent + each, ledger_id=ledger_id).data
                for each in range(16)
            ]
            await peer.send(frame(sections))
            sent += len(sections)
            await until(lambda: served.bookie.measures.added_entries == sent)  # noqa: B023
        peer.shut()
        # It has taken nothing when the bookie hears of that.
        await pass_turns(50)
        assert statuses_of(await peer.rest()) == [Status.OK] * sent


def unsent_connections() -> list[Connection]:
    return [each for each in gc.get_objects() if isinstance(each, Connection) and each.unsent_bytes]


async def test_a_sender_that_ends_with_the_taking_of_frames_is_no_defect() -> None:
    """Its end was told in the step behind, when nobody waited for it any more."""
    stream = adds.AddStream.__new__(adds.AddStream)
    ending = asyncio.Event()
    failures: list[object] = []

    async def take_frames() -> None:
        ending.set()
        await asyncio.sleep(0)

    stream._take_frames = take_frames  # type: ignore[method-assign]
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
    for turns in range(4):
        ending.clear()

        async def send(turns: int = turns) -> None:
            await ending.wait()
            await pass_turns(turns)

        sender = asyncio.create_task(send())
        await pass_turns(2)
        await stream._take_all_frames(sender)
        await sender
        await pass_turns(3)
    assert failures == []
