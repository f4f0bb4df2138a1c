"""Sections of which nothing tells the answers apart: same ledger, same ids at both ends, other entries in between.

A bookie that changes its place in a striped ledger gets another share of the same run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from bookie_server.client.message_stream import MessageStream, StreamEndedError
from bookie_server.client.settings import ConnectionSettings
from bookie_server.client.write_stream import WriteStream
from bookie_server.wire.buffer import Buffer
from bookie_server.wire.messages import EncodedSection, SectionReply, Status
from tests.doubles.virtual_time import on_virtual_time

NAME = 7, 0, 3, False
SHARES = [EncodedSection(*NAME, data) for data in (b"0 2 3", b"0 1 3", b"0 1 2 3")]


class Answered(MessageStream):
    """A stream on which a test says what is answered."""

    def __init__(self) -> None:
        self.sent: list[EncodedSection] = []
        self._answers: asyncio.Queue[Status | None] = asyncio.Queue()

    @property
    def unsent_bytes(self) -> int:
        return 0

    @property
    def entries_max(self) -> None:
        return None

    def send(self, sections: Any) -> None:
        self.sent += sections

    def answer(self, status: Status | None) -> None:
        """``None``: the connection ends."""
        self._answers.put_nowait(status)

    async def receive(self, take_at_once: Callable[[Buffer], bool]) -> Buffer:
        status = await self._answers.get()
        if status is None:
            raise StreamEndedError("it ended")
        return bytes([status.value])

    def parse_replies(self, message: Buffer) -> list[SectionReply]:
        return [SectionReply(*NAME, Status(bytes(message)[0]))]

    def close(self) -> None:
        """Nothing is held."""


class Scene:
    def __init__(self) -> None:
        self.streams: list[Answered] = []
        # Small frames go out although others are unanswered.
        settings = ConnectionSettings(
            add_timeout_ms=1_000, frame_size_bytes_target=1, frames_in_flight_max=9
        )
        self.stream = WriteStream(self._open, settings)
        self.statuses: dict[int, Status] = {}

    async def _open(self) -> Answered:
        self.streams.append(Answered())
        return self.streams[-1]

    async def write(self, share: int) -> None:
        """Send one of them, in a frame of its own."""
        self.stream.write(SHARES[share], lambda status: self.statuses.update({share: status}))
        await asyncio.sleep(0.01)

    async def answer(self, status: Status | None) -> None:
        self.streams[-1].answer(status)
        await asyncio.sleep(0.01)


def run(main: Callable[[Scene], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        scene = Scene()
        await main(scene)
        await scene.stream.close()

    on_virtual_time(whole())


def test_a_late_answer_is_not_for_what_was_sent_since_under_the_same_name() -> None:
    """An entry counted as stored where it was not: the answer was for a share without it."""

    async def main(scene: Scene) -> None:
        await scene.write(0)
        await asyncio.sleep(1.5)
        assert scene.statuses == {0: Status.UNREACHABLE}
        await scene.write(1)
        await scene.answer(Status.OK)
        assert 1 not in scene.statuses
        await scene.answer(Status.OK)
        assert scene.statuses[1] is Status.OK

    run(main)


def test_of_several_each_is_granted_once_all_are() -> None:
    async def main(scene: Scene) -> None:
        for share in range(3):
            await scene.write(share)
        for _ in range(2):
            await scene.answer(Status.OK)
            assert scene.statuses == {}
        await scene.answer(Status.OK)
        assert scene.statuses == dict.fromkeys(range(3), Status.OK)

    run(main)


@pytest.mark.parametrize("given_up", [False, True])
def test_a_refusal_may_be_for_any_of_them(given_up: bool) -> None:
    """It may overtake the grant of another one."""

    async def main(scene: Scene) -> None:
        await scene.write(0)
        await asyncio.sleep(1.5 if given_up else 0)
        await scene.write(1)
        await scene.answer(Status.CONFLICT)
        assert scene.statuses[1] is Status.CONFLICT
        assert scene.statuses[0] is (Status.UNREACHABLE if given_up else Status.CONFLICT)
        await scene.write(2)
        # That of the other one.
        await scene.answer(Status.OK)
        assert 2 not in scene.statuses
        await scene.answer(Status.OK)
        assert scene.statuses[2] is Status.OK

    run(main)


def test_whoever_is_too_busy_for_one_of_them_is_asked_for_each_again() -> None:
    async def main(scene: Scene) -> None:
        await scene.write(0)
        await scene.write(1)
        await scene.answer(Status.BUSY)
        await asyncio.sleep(0.1)
        assert [section.data for section in scene.streams[0].sent[2:]] in (
            [b"0 2 3", b"0 1 3"],
            [b"0 1 3", b"0 2 3"],
        )
        for _ in range(2):
            await scene.answer(Status.OK)
            assert scene.statuses == {}
        await scene.answer(Status.OK)
        assert scene.statuses == {0: Status.OK, 1: Status.OK}

    run(main)


def test_answers_end_with_their_connection() -> None:
    async def main(scene: Scene) -> None:
        await scene.write(0)
        await asyncio.sleep(1.5)
        await scene.write(1)
        await scene.answer(None)
        await asyncio.sleep(0.1)
        assert [section.data for section in scene.streams[1].sent] == [b"0 1 3"]
        await scene.answer(Status.OK)
        assert scene.statuses[1] is Status.OK

    run(main)
