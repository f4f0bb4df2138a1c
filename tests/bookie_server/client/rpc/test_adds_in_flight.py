"""How many adds are on their way to one of Apache's bookies, and how long its silence is borne."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import cast

import pytest

from bookie_server.carrier.connection import Connection
from bookie_server.client.message_stream import StreamEndedError
from bookie_server.client.rpc.adds import ENTRIES_IN_FLIGHT_MAX, RpcAdds
from bookie_server.wire.buffer import Buffer
from bookie_server.wire.rpc import messages, v2
from bookie_server.wire.rpc.frames import LENGTH_SIZE, frame_at
from bookie_server.wire.rpc.statuses import RpcStatus
from tests.doubles.records import encoded_section
from tests.doubles.virtual_time import on_virtual_time

LEDGER = 7
SILENCE_S = 10.0


class Line:
    """A connection to a bookie that is played by the test."""

    unsent_bytes = 0

    def __init__(self) -> None:
        self.calls = 0
        self.written = b""

    def write(self, parts: Iterable[Buffer]) -> None:
        self.calls += 1
        self.written += b"".join(parts)

    async def receive_each(self, memory: memoryview, take: Callable[[int], bool]) -> bool:
        await asyncio.Event().wait()
        return False

    @property
    def adds(self) -> int:
        """How many have been written."""
        at = count = 0
        while (frame := frame_at(memoryview(self.written), at)) is not None:
            at += LENGTH_SIZE + len(frame)
            count += 1
        assert at == len(self.written)
        return count


def stream_over(line: Line) -> RpcAdds:
    return RpcAdds(cast("Connection", line), v2.VERSION, SILENCE_S)


def answers(first: int, count: int) -> bytes:
    replies = (messages.AddReply(LEDGER, entry_id) for entry_id in range(first, first + count))
    frames = (v2.encode_answer(v2.Answer(RpcStatus.EOK, reply)) for reply in replies)
    return b"".join(part for frame in frames for part in frame)


def test_never_more_are_on_their_way_than_a_bookie_takes() -> None:
    async def main() -> None:
        line = Line()
        stream = stream_over(line)
        stream.send([encoded_section([b"x"] * 16_000)])
        assert line.adds == ENTRIES_IN_FLIGHT_MAX == 5_000
        answered = 0
        # A thousand go together, and only where all of them may.
        for count, written in ((1_500, 6_000), (400, 6_000), (100, 7_000), (5_000, 12_000)):
            stream.parse_replies(answers(answered, count))
            answered += count
            assert line.adds == written
            assert written - answered <= ENTRIES_IN_FLIGHT_MAX

    on_virtual_time(main())


def test_what_goes_at_the_same_time_is_one_call_of_the_kernels() -> None:
    async def main() -> None:
        line = Line()
        stream = stream_over(line)
        stream.send([encoded_section([b"x"] * 100, first) for first in range(0, 1_000, 100)])
        assert (line.calls, line.adds) == (1, 1_000)

    on_virtual_time(main())


@pytest.mark.parametrize("rest_s", [0.0, 4.0, 9.0])
def test_silence_counts_from_what_was_sent_behind_a_rest(rest_s: float) -> None:
    """Nobody owes an answer while nothing is asked."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        stream = stream_over(Line())
        receiving = asyncio.create_task(stream.receive(lambda _: True))
        await asyncio.sleep(rest_s)
        sent_s = loop.time()
        stream.send([encoded_section([b"x"])])
        with pytest.raises(StreamEndedError, match="nothing is answered"):
            await receiving
        assert SILENCE_S <= loop.time() - sent_s <= 2 * SILENCE_S

    on_virtual_time(main())
