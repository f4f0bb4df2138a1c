"""What a stream over a real socket asks the kernel, and when: each question costs as much as a few small adds."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Sequence

import pytest

from bookie_server.carrier.connection import Connection
from bookie_server.carrier.sockets import SocketStream
from bookie_server.wire.buffer import Buffer
from tests.patience import seconds

SENT = os.urandom(1 << 20) * 16
"""Several times what the kernel keeps of a connection."""


class CountedSocket(socket.socket):
    """Notes how much of what it was offered the kernel took; -1 for none."""

    def note(self, taken: list[int]) -> None:
        self.__dict__["taken"] = taken

    def sendmsg(self, buffers: Sequence[Buffer], *_: object) -> int:  # type: ignore[override]
        notes: list[int] = self.__dict__["taken"]
        try:
            notes.append(super().sendmsg(buffers))
        except BlockingIOError:
            notes.append(-1)
            raise
        return notes[-1]


@pytest.fixture
def ends() -> tuple[CountedSocket, socket.socket]:
    """Both of a connection over loopback."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        here = CountedSocket(socket.AF_INET, socket.SOCK_STREAM)
        here.connect(listener.getsockname())
        there, _ = listener.accept()
    there.setblocking(False)
    return here, there


async def received(end: socket.socket, size: int) -> bytes:
    loop, parts = asyncio.get_running_loop(), bytearray()
    while len(parts) < size:
        parts += await loop.sock_recv(end, 1 << 16)
    return bytes(parts)


async def test_what_was_not_taken_whole_waits_until_there_is_room_again(
    ends: tuple[CountedSocket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = ends
    taken: list[int] = []
    here.note(taken)
    loop = asyncio.get_running_loop()
    watched: list[int] = []
    watch = loop.add_writer

    def watch_and_note(descriptor: int, call: Callable[[], object]) -> None:
        watched.append(descriptor)
        watch(descriptor, call)

    monkeypatch.setattr(loop, "add_writer", watch_and_note)
    sending = Connection(SocketStream(here, "there"))
    try:
        # More than once: it is watched anew each time.
        for turn in range(1, 4):
            for begin in range(0, len(SENT), 1 << 20):
                sending.write([memoryview(SENT)[begin : begin + (1 << 20)]])
            assert sending.unsent_bytes
            async with asyncio.timeout(seconds(60)):
                assert await received(there, len(SENT)) == SENT
                await sending.drain()

            # Never asked in vain, and watched once for all that waited.
            assert -1 not in taken
            assert len(taken) > 2 * turn
            assert watched == turn * [here.fileno()]
            # Nothing wakes the loop any more.
            assert not loop.remove_writer(here.fileno())

        sending.write([b"next"])
        async with asyncio.timeout(seconds(60)):
            assert await received(there, 4) == b"next"
    finally:
        sending.close()
        there.close()


async def test_a_stream_that_is_closed_when_it_is_full_says_so(
    ends: tuple[CountedSocket, socket.socket],
) -> None:
    here, there = ends
    taken: list[int] = []
    here.note(taken)
    stream = SocketStream(here, "there")
    while stream.send([SENT]) == len(SENT):
        pass
    assert 0 < taken[-1] < len(SENT)

    stream.close()

    with pytest.raises(OSError):
        stream.send([SENT])
    there.close()


async def test_a_stream_that_is_closed_as_it_is_told_of_room_leaves_its_descriptor_alone(
    ends: tuple[CountedSocket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else may have the number already."""
    here, there = ends
    here.note([])
    loop = asyncio.get_running_loop()
    stream = SocketStream(here, "there")
    while stream.send([SENT]):
        pass
    is_told, others = asyncio.Event(), list[int]()

    def end() -> None:
        stream.close()
        monkeypatch.setattr(loop, "remove_writer", others.append)
        is_told.set()

    stream.call_when_writable(end)
    async with asyncio.timeout(seconds(60)):
        while await loop.sock_recv(there, 1 << 16):
            pass
        await is_told.wait()
        await asyncio.sleep(0)
    assert not others
    there.close()
