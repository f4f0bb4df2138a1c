"""What is received with a head: in how few calls, whose memory it is, and when it is taken."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence

import pytest

from bookie_server.carrier import connection
from bookie_server.carrier.byte_stream import ByteStream
from bookie_server.carrier.connection import Connection, ConnectionEndedError, new_body
from bookie_server.carrier.read_ahead import AHEAD_BYTES_MAX, ReadAhead
from bookie_server.carrier.taking import receive_untaken
from bookie_server.wire.buffer import Buffer
from bookie_server.wire.envelope import HEAD_SIZE, Head, Kind, encode_head
from tests.doubles.virtual_time import on_virtual_time


def message(body: bytes) -> bytes:
    return encode_head(Head(Kind.FRAME, len(body))) + body


class Kernel(ByteStream):
    """Gives what has come, as much as is asked for, and notes each call."""

    peer = "peer"

    def __init__(self, *arrivals: bytes, has_ended: bool = False) -> None:
        self._arrived = bytearray(b"".join(arrivals))
        self._has_ended = has_ended
        self.asked: list[int] = []
        """For how many bytes."""
        self.when_readable: Callable[[], None] | None = None

    def arrive(self, data: bytes) -> None:
        self._arrived += data
        call, self.when_readable = self.when_readable, None
        assert call is not None
        call()

    def send(self, buffers: Sequence[Buffer]) -> int:
        raise AssertionError("nothing is sent here")

    def call_when_writable(self, call: Callable[[], None]) -> None:
        raise AssertionError("nothing is sent here")

    def receive_into(self, buffer: memoryview) -> int | None:
        self.asked.append(len(buffer))
        if not self._arrived:
            return 0 if self._has_ended else None
        count = min(len(buffer), len(self._arrived))
        buffer[:count] = self._arrived[:count]
        del self._arrived[:count]
        return count

    def call_when_readable(self, call: Callable[[], None]) -> None:
        self.when_readable = call

    def close(self) -> None:
        pass


class Receiver:
    """Takes all messages at once, up to the one whose body says stop."""

    def __init__(self, kernel: Kernel) -> None:
        self.connection = Connection(kernel)
        self.taken: list[bytes] = []

    def take(self, body: memoryview) -> bool:
        self.taken.append(bytes(body))
        return self.taken[-1] != b"stop"

    async def receive(self) -> None:
        await receive_untaken(self.connection, lambda head: new_body(head.size_bytes), self.take)


def test_small_messages_that_came_together_are_received_in_one_call() -> None:
    async def main() -> None:
        kernel = Kernel(message(b"one"), message(b"two"), message(b"stop"))
        receiver = Receiver(kernel)
        await receiver.receive()
        assert receiver.taken == [b"one", b"two", b"stop"]
        assert kernel.asked == [AHEAD_BYTES_MAX]

    on_virtual_time(main())


def test_behind_a_large_body_the_head_is_received_alone_and_the_next_body_in_its_own_memory() -> (
    None
):
    async def main() -> None:
        large = bytes(2 * AHEAD_BYTES_MAX)
        kernel = Kernel(message(large), message(large), message(b"small"), message(b"stop"))
        receiver = Receiver(kernel)
        await receiver.receive()
        assert receiver.taken == [large, large, b"small", b"stop"]
        with_head = AHEAD_BYTES_MAX - HEAD_SIZE
        rest = len(large) - with_head
        # The head of the small one is awaited to be a large one's, and behind that body nothing is.
        assert kernel.asked == [
            *(AHEAD_BYTES_MAX, rest),
            *(HEAD_SIZE, len(large)),
            *(HEAD_SIZE, len(b"small")),
            AHEAD_BYTES_MAX,
        ]

    on_virtual_time(main())


def test_what_is_left_is_the_connections_own_while_others_receive() -> None:
    async def main() -> None:
        one = Receiver(Kernel(message(b"stop"), message(b"left"), message(b"stop")))
        other = Receiver(Kernel(message(b"x" * 1_000), message(b"stop")))
        await one.receive()
        await other.receive()
        await one.receive()
        assert one.taken == [b"stop", b"left", b"stop"]

    on_virtual_time(main())


def test_what_is_left_is_taken_though_nothing_more_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    # Each message is as much as a connection may take in one step.
    monkeypatch.setattr(connection, "STEP_S", 0.0)

    async def main() -> None:
        kernel = Kernel(message(b"one"), message(b"two"), message(b"stop"))
        receiver = Receiver(kernel)
        async with asyncio.timeout(1):
            await receiver.receive()
        assert receiver.taken == [b"one", b"two", b"stop"]
        assert kernel.asked == [AHEAD_BYTES_MAX]

    on_virtual_time(main())


def test_a_connection_that_is_closed_while_something_is_left_takes_nothing_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection, "STEP_S", 0.0)

    async def main() -> None:
        receiver = Receiver(Kernel(message(b"one"), message(b"two"), message(b"stop")))
        asyncio.get_running_loop().call_soon(receiver.connection.close)
        with pytest.raises(ConnectionEndedError, match="closed"):
            await receiver.receive()
        assert b"stop" not in receiver.taken

    on_virtual_time(main())


@pytest.mark.parametrize("cut", [1, HEAD_SIZE - 1, HEAD_SIZE, HEAD_SIZE + 2])
def test_a_peer_that_ends_within_what_was_received_ahead_ends_in_the_middle(cut: int) -> None:
    async def main() -> None:
        receiver = Receiver(Kernel(message(b"one"), message(b"two")[:cut], has_ended=True))
        with pytest.raises(ConnectionEndedError, match="in the middle of a message"):
            await receiver.receive()
        assert receiver.taken == [b"one"]

    on_virtual_time(main())


def test_a_message_that_comes_in_two_parts_is_one() -> None:
    async def main() -> None:
        whole = message(b"one") + message(b"stop")
        for cut in range(1, len(whole)):
            kernel = Kernel(whole[:cut])
            receiver = Receiver(kernel)
            receiving = asyncio.create_task(receiver.receive())
            await asyncio.sleep(0.001)
            kernel.arrive(whole[cut:])
            await receiving
            assert receiver.taken == [b"one", b"stop"]

    on_virtual_time(main())


def test_whoever_receives_some_gets_what_is_left_first() -> None:
    async def main() -> None:
        connection = Connection(Kernel(message(b"one"), b"and more"))
        assert await connection.receive_head() == Head(Kind.FRAME, 3)
        memory = new_body(5)
        assert await connection.receive_some(memory) == 5
        assert bytes(memory) == b"onean"
        taken: list[bytes] = []

        def take(count: int) -> bool:
            taken.append(bytes(memory[:count]))
            return False

        assert await connection.receive_each(memory, take)
        assert taken == [b"d mor"]

    on_virtual_time(main())


def test_whoever_receives_each_gets_what_is_left_though_nothing_more_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection, "STEP_S", 0.0)

    async def main() -> None:
        receiving = Connection(Kernel(message(b""), b"left behind"))
        await receiving.receive_head()
        memory, taken = new_body(4), bytearray()

        def take(count: int) -> bool:
            taken.extend(memory[:count])
            return len(taken) < len(b"left behind")

        async with asyncio.timeout(1):
            assert await receiving.receive_each(memory, take)
        assert taken == b"left behind"

    on_virtual_time(main())


def test_nothing_is_received_ahead_of_what_is_no_head() -> None:
    kernel = Kernel(b"0123456789")
    ahead = ReadAhead(kernel)
    assert ahead.receive_into(memoryview(bytearray(4))) == 4
    assert not ahead.has_bytes
    assert kernel.asked == [4]


def test_what_is_here_ahead_of_its_time_is_no_more_than_the_pages_say() -> None:
    # docs/performance.md: of each of ten thousand connections.
    assert AHEAD_BYTES_MAX == 16 * 1024


def test_two_threads_that_receive_at_once_do_not_write_over_each_other() -> None:
    head = memoryview(bytearray(4))
    ahead = ReadAhead(Kernel(b"headmine"))
    assert ahead.receive_into(head, is_head=True) == 4

    def receive_elsewhere() -> None:
        # A client's loop runs beside others of its process, each on a thread of its own.
        ReadAhead(Kernel(b"tailtheirs")).receive_into(memoryview(bytearray(4)), is_head=True)

    other = threading.Thread(target=receive_elsewhere)
    other.start()
    other.join()
    assert ahead.receive_into(head) == 4
    assert bytes(head) == b"mine"
