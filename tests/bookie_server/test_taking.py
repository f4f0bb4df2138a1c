"""Messages taken where they come: which are, which are left to the task, and what ends a connection."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import suppress
from random import Random

import pytest

from bookie_server.carrier import connection
from bookie_server.carrier.connection import Connection, ConnectionEndedError, new_body
from bookie_server.carrier.taking import receive_untaken
from bookie_server.wire.codec import MalformedFrameError
from bookie_server.wire.envelope import Head, Kind, encode_head
from tests.doubles.byte_streams import SimStream, connected, send_all
from tests.simulation.kit.loop import SimLoop

LONG_S = 60.0


def run(main: Coroutine[None, None, None]) -> list[object]:
    with asyncio.Runner(loop_factory=SimLoop) as runner:
        runner.run(main)
        loop = runner.get_loop()
        assert isinstance(loop, SimLoop)
        return list(loop.failures)


def message(kind: Kind, body: bytes) -> bytes:
    return encode_head(Head(kind, len(body))) + body


class Scene:
    """A peer that sends, and whoever receives at the other end."""

    def __init__(self, seed: int = 0) -> None:
        self.peer: SimStream
        self.peer, theirs = connected(Random(seed))
        self.connection = Connection(theirs)
        self.taken: list[bytes] = []

    def memory_for(self, head: Head) -> memoryview | None:
        return new_body(head.size_bytes) if head.kind is Kind.FRAME else None

    def take(self, body: memoryview) -> bool:
        if bytes(body).startswith(b"not"):
            return False
        self.taken.append(bytes(body))
        return True

    async def next(self) -> tuple[Head, memoryview | None] | None:
        return await receive_untaken(self.connection, self.memory_for, self.take)


@pytest.mark.parametrize("seed", range(20))
def test_each_message_is_taken_once_in_its_place(seed: int) -> None:
    async def main() -> None:
        scene, random = Scene(seed), Random(seed)
        bodies = [
            random.choice((b"", b"not ")) + bytes([each]) * random.choice((1, 70, 40_000))
            for each in range(60)
        ]

        async def receive() -> None:
            while (found := await scene.next()) is not None:
                head, body = found
                assert body is not None
                assert head == Head(Kind.FRAME, len(body))
                scene.taken.append(bytes(body))

        receiving = asyncio.create_task(receive())
        await send_all(scene.peer, b"".join(message(Kind.FRAME, body) for body in bodies))
        scene.peer.close()
        async with asyncio.timeout(LONG_S):
            await receiving
        assert scene.taken == bodies

    assert run(main()) == []


def test_a_message_for_which_there_is_no_memory_is_left_to_the_task_with_its_body_unread() -> None:
    async def main() -> None:
        scene = Scene()
        await send_all(scene.peer, message(Kind.FRAME, b"one") + message(Kind.HELLO, b"two"))
        assert await scene.next() == (Head(Kind.HELLO, 3), None)
        assert bytes(await scene.connection.receive_body(3)) == b"two"
        assert scene.taken == [b"one"]

    assert run(main()) == []


def test_an_empty_body_is_left_to_the_task() -> None:
    async def main() -> None:
        scene = Scene()
        await send_all(scene.peer, message(Kind.FRAME, b"") + message(Kind.FRAME, b"one"))
        assert await scene.next() == (Head(Kind.FRAME, 0), None)

    assert run(main()) == []


@pytest.mark.parametrize("cut", [1, 15, 16, 17, 20])
def test_a_peer_may_end_it_in_front_of_a_head_only(cut: int) -> None:
    async def main() -> None:
        scene = Scene()
        second = message(Kind.FRAME, b"second")
        await send_all(scene.peer, message(Kind.FRAME, b"first") + second[:cut])
        scene.peer.close()
        with pytest.raises(ConnectionEndedError, match="in the middle of a message"):
            await scene.next()
        assert scene.taken == [b"first"]

    assert run(main()) == []


def test_what_is_no_head_is_told_to_the_task() -> None:
    async def main() -> None:
        scene = Scene()
        await send_all(scene.peer, message(Kind.FRAME, b"first") + bytes(16))
        with pytest.raises(MalformedFrameError):
            await scene.next()
        assert scene.taken == [b"first"]

    assert run(main()) == []


@pytest.mark.parametrize("where", ["memory_for", "take"])
def test_a_defect_ends_the_connection_and_nobody_waits_for_ever(
    where: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def defective(_: object) -> bool:
        raise ZeroDivisionError

    async def main() -> None:
        scene = Scene()
        monkeypatch.setattr(scene, where, defective)
        sending = asyncio.create_task(send_all(scene.peer, message(Kind.FRAME, b"first")))
        with pytest.raises(ConnectionEndedError, match="a defect here"):
            async with asyncio.timeout(LONG_S):
                await scene.next()
        sending.cancel()

    with caplog.at_level(logging.ERROR):
        assert run(main()) == []
    assert "ZeroDivisionError" in caplog.text


def test_who_takes_may_close_the_connection() -> None:
    async def main() -> None:
        scene = Scene()

        def take(_: memoryview) -> bool:
            scene.connection.close()
            return True

        await send_all(scene.peer, message(Kind.FRAME, b"first"))
        with pytest.raises(ConnectionEndedError, match="closed"):
            await receive_untaken(scene.connection, scene.memory_for, take)

    assert run(main()) == []


def test_others_run_while_messages_keep_coming(monkeypatch: pytest.MonkeyPatch) -> None:
    # As if each message took longer than a step may.
    monkeypatch.setattr("bookie_server.carrier.connection.STEP_S", -1.0)

    async def main() -> None:
        scene = Scene()
        turns_of_takes: set[int] = set()
        turn = 0

        def take(_: memoryview) -> bool:
            turns_of_takes.add(turn)
            return True

        async def count_turns() -> None:
            nonlocal turn
            while True:
                turn += 1
                await asyncio.sleep(0)

        data = b"".join(message(Kind.FRAME, b"x") for _ in range(50))
        await send_all(scene.peer, data)
        await asyncio.sleep(LONG_S)
        counting = asyncio.create_task(count_turns())
        taking = asyncio.create_task(receive_untaken(scene.connection, scene.memory_for, take))
        for _ in range(2_000):
            await asyncio.sleep(0)
        counting.cancel()
        taking.cancel()
        assert len(turns_of_takes) == 50

    assert run(main()) == []


class Pieces:
    """What is taken as it comes, until there is enough of it."""

    def __init__(self, connection: Connection, enough: int = 2**40) -> None:
        self._connection = connection
        self._memory = new_body(1_000)
        self.enough = enough
        self.taken = bytearray()

    def take(self, count: int) -> bool:
        self.taken += self._memory[:count]
        return len(self.taken) < self.enough

    async def receive(self) -> bool:
        return await self._connection.receive_each(self._memory, self.take)


@pytest.mark.parametrize("seed", range(20))
def test_what_comes_is_taken_once_however_often_its_receiver_gives_up(seed: int) -> None:
    """As an adder does that looks now and then whether anything was answered."""

    async def main() -> None:
        scene, random = Scene(seed), Random(seed)
        sent = random.randbytes(100_000)
        pieces = Pieces(scene.connection, enough=40_000)
        sending = asyncio.create_task(send_all(scene.peer, sent))
        is_enough = False
        async with asyncio.timeout(LONG_S):
            while not is_enough:
                with suppress(TimeoutError):
                    async with asyncio.timeout(random.choice((0.0, 0.000_1, 0.01))):
                        assert await pieces.receive()
                        is_enough = True
            assert 40_000 <= len(pieces.taken) <= 41_000
            pieces.enough = 2**40
            await sending_and_closed(sending, scene.peer, pieces)
        assert bytes(pieces.taken) == sent

    assert run(main()) == []


async def sending_and_closed(sending: asyncio.Task[None], peer: SimStream, pieces: Pieces) -> None:
    """What is left is taken, and then the peer ends the connection."""

    async def close() -> None:
        await sending
        peer.close()

    closing = asyncio.create_task(close())
    assert not await pieces.receive()
    await closing


@pytest.mark.parametrize("how", ["closed", "defect"])
def test_whoever_takes_what_comes_is_told_of_the_end(
    how: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        scene = Scene()

        def take(_: int) -> bool:
            if how == "defect":
                raise RuntimeError("a defect")
            scene.connection.close()
            return False

        await send_all(scene.peer, b"x")
        with pytest.raises(ConnectionEndedError, match="closed" if how == "closed" else "defect"):
            await scene.connection.receive_each(new_body(10), take)
        with pytest.raises(ConnectionEndedError):
            await scene.connection.receive_each(new_body(10), take)

    assert run(main()) == []
    assert ("taking what came" in caplog.text) is (how == "defect")


def test_whoever_sends_without_end_leaves_others_their_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection, "STEP_S", 0)
    turns = 0

    async def main() -> None:
        nonlocal turns
        scene = Scene()
        await send_all(scene.peer, b"x" * 100)
        await asyncio.sleep(LONG_S)  # all of it has come
        left = 100

        def take(count: int) -> bool:
            nonlocal left
            left -= count
            return left > 0

        async def others() -> None:
            nonlocal turns
            while left > 0:
                turns += 1
                await asyncio.sleep(0)

        other = asyncio.create_task(others())
        assert await scene.connection.receive_each(memoryview(bytearray(1)), take)
        await other

    run(main())
    assert turns > 50
