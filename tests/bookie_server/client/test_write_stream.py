"""What a stream of adds does about frames that nobody answers, on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from bookie_server.client.settings import ConnectionSettings
from bookie_server.client.write_stream import WriteStream
from bookie_server.wire import add_frames
from bookie_server.wire.messages import Status
from tests.doubles.records import encoded_section
from tests.simulation.kit.loop import SimLoop


class SilentOnce:
    """A call whose first frame is lost; the others are answered."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self._answers: asyncio.Queue[bytes] = asyncio.Queue()

    async def write(self, frame: bytes) -> None:
        self.frames.append(frame)
        if len(self.frames) > 1:
            replies = [part.reply(Status.OK) for part in add_frames.parse_frame(frame)]
            self._answers.put_nowait(add_frames.encode_write_reply(replies))

    async def read(self) -> bytes:
        return await self._answers.get()

    def cancel(self) -> None:
        """Nothing is held."""


def on_virtual_time(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with asyncio.Runner(loop_factory=SimLoop) as runner:
        runner.run(main())


def test_what_waits_behind_frames_that_expired_is_sent() -> None:
    """Their slots were free again, and nobody told the sender: it expired unsent, as they had."""

    async def main() -> None:
        call, statuses = SilentOnce(), dict[str, Status]()
        settings = ConnectionSettings(add_timeout_ms=1_000)
        stream = WriteStream(lambda: call, settings)
        stream.write(encoded_section([b"x"], 0), lambda status: statuses.update(first=status))
        await asyncio.sleep(0.5)
        stream.write(encoded_section([b"y"], 1), lambda status: statuses.update(second=status))
        await asyncio.sleep(2)

        assert statuses == {"first": Status.UNREACHABLE, "second": Status.OK}
        await stream.close()

    on_virtual_time(main)
