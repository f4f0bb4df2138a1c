"""A byte stream over TLS: the same bytes in order, whatever the stream below does; and who is let in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import cast

import pytest

from bookie_server.carrier.byte_stream import BUFFERS_MAX, ByteStream
from bookie_server.carrier.connection import Connection, ConnectionEndedError
from bookie_server.carrier.sockets import SocketStream, listen
from bookie_server.carrier.tls_stream import TlsStream, connect_over_tls, secure
from bookie_server.wire.buffer import Buffer
from bookie_server.wire.envelope import HEAD_SIZE, Kind
from bookkeeper_metadata.foundation.tls.contexts import Tls
from tests.doubles.byte_streams import SimStream, connected
from tests.doubles.certificates import HOST, Authority
from tests.doubles.virtual_time import on_virtual_time

KIB = 1024


@dataclass
class Ends:
    """Both ends' files."""

    client: Tls
    server: Tls

    async def agree(
        self, random: Random, *, wants_certificate: bool = True
    ) -> tuple[TlsStream, TlsStream, SimStream, SimStream]:
        """The client's end, the server's, and what is below each."""
        ours, theirs = connected(random)
        server = self.server.server_context(wants_certificate=wants_certificate)
        client, served = await asyncio.gather(
            secure(ours, self.client.client_context(), HOST), secure(theirs, server)
        )
        return client, served, ours, theirs


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def ends(authority: Authority) -> Ends:
    return Ends(Tls(authority.files("task")), Tls(authority.files("bookie")))


async def take(stream: ByteStream, size: int, random: Random) -> bytes:
    """So many bytes, or all up to the end."""
    found = bytearray()
    loop = asyncio.get_running_loop()
    while len(found) < size:
        memory = memoryview(bytearray(random.randrange(1, 100 * KIB)))[: size - len(found)]
        count = stream.receive_into(memory)
        if count is None:
            readable = loop.create_future()
            stream.call_when_readable(lambda done=readable: done.done() or done.set_result(None))  # type: ignore[misc]
            await readable
        elif count:
            found += memory[:count]
        else:
            break
    return bytes(found)


def test_bytes_arrive_in_order_whatever_their_pieces(ends: Ends) -> None:
    async def exchange(seed: int) -> None:
        random = Random(seed)
        client, served, _, _ = await ends.agree(random)
        one, other = Connection(client), Connection(served)
        sizes = [random.choice((0, 1, 15, 1_000, 16_384, 16_385, 70_000)) for _ in range(40)]
        messages = [random.randbytes(size) for size in sizes]
        for message in messages:
            cuts = sorted(random.randrange(len(message) + 1) for _ in range(random.randrange(5)))
            pairs = zip([0, *cuts], [*cuts, len(message)], strict=True)
            one.send(Kind.FRAME, [message[begin:end] for begin, end in pairs])
            other.send(Kind.FRAME, (message,))
        for connection in (other, one):
            for message in messages:
                head = await connection.receive_head()
                assert head is not None
                assert head.size_bytes == len(message)
                assert bytes(await connection.receive_body(head.size_bytes)) == message
        one.close()
        other.close()

    for seed in range(30):
        on_virtual_time(exchange(seed))


def test_more_small_buffers_than_a_call_may_have(ends: Ends) -> None:
    async def exchange() -> None:
        random = Random(1)
        client, served, _, _ = await ends.agree(random)
        one, other = Connection(client), Connection(served)
        parts = [bytes([index % 251]) * 7 for index in range(3 * BUFFERS_MAX)]
        one.send(Kind.FRAME, parts)
        head = await other.receive_head()
        assert head is not None
        assert bytes(await other.receive_body(head.size_bytes)) == b"".join(parts)

    on_virtual_time(exchange())


async def test_an_end_over_sockets_is_one_of_tls(ends: Ends) -> None:
    with listen(HOST, 0) as listener:
        port = listener.getsockname()[1]
        connecting = asyncio.create_task(connect_over_tls(HOST, port, ends.client))
        accepted, _ = await asyncio.get_running_loop().sock_accept(listener)
        served = await secure(
            SocketStream(accepted, "client"), ends.server.server_context(wants_certificate=True)
        )
        client = await connecting
        one, other = Connection(client), Connection(served)
        one.send(Kind.FRAME, (b"last words",))
        one.close()
        head = await other.receive_head()
        assert head is not None
        assert bytes(await other.receive_body(head.size_bytes)) == b"last words"
        assert await other.receive_head() is None
        other.close()


def test_an_end_that_somebody_else_made_is_none(ends: Ends) -> None:
    """Whoever cuts a connection must not be taken for the peer that has said all."""

    async def cut() -> None:
        client, served, ours, _ = await ends.agree(Random(2))
        ours.close()
        with pytest.raises(OSError):
            await take(served, 1, Random(0))
        client.close()

    on_virtual_time(cut())


def test_changed_bytes_are_noticed(ends: Ends) -> None:
    async def change() -> None:
        client, served, ours, theirs = await ends.agree(Random(3))
        taken = client.send((b"x" * 100,))
        assert taken
        await asyncio.sleep(1)
        theirs._arrived[len(theirs._arrived) // 2] ^= 1
        with pytest.raises(OSError):
            await take(served, 100, Random(0))
        ours.close()

    on_virtual_time(change())


@dataclass
class Narrow(ByteStream):
    """Takes a few bytes now and then; what it took, and who waits for it."""

    inner: SimStream
    room: int = 0
    taken: int = 0
    waiting: list[Callable[[], None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.peer = self.inner.peer

    def send(self, buffers: Sequence[Buffer]) -> int:
        data = b"".join(buffers)[: self.room]
        count = self.inner.send((data,)) if data else 0
        self.room -= count
        self.taken += count
        return count

    def call_when_writable(self, call: Callable[[], None]) -> None:
        if self.room:
            self.inner.call_when_writable(call)
        else:
            self.waiting.append(call)

    def receive_into(self, buffer: memoryview) -> int | None:
        return self.inner.receive_into(buffer)

    def call_when_readable(self, call: Callable[[], None]) -> None:
        self.inner.call_when_readable(call)

    def close(self) -> None:
        self.inner.close()

    def widen(self, room: int) -> None:
        self.room += room
        waiting, self.waiting = self.waiting, []
        for call in waiting:
            call()


def test_what_the_kernel_has_not_taken_counts_as_unsent(ends: Ends) -> None:
    """Room of a reply is given back when all of it is with the kernel: encrypted bytes that wait here are not."""

    async def send() -> None:
        ours, theirs = connected(Random(4))
        narrow = Narrow(ours, room=1 << 30)
        server = ends.server.server_context(wants_certificate=True)
        client, served = await asyncio.gather(
            secure(narrow, ends.client.client_context(), HOST), secure(theirs, server)
        )
        narrow.room = 0
        connection, other = Connection(client), Connection(served)
        message = Random(0).randbytes(40 * KIB)
        connection.send(Kind.FRAME, (message,))
        draining = asyncio.create_task(connection.drain())
        receiving = asyncio.create_task(other.receive_head())
        while not draining.done():
            assert connection.unsent_bytes, "something waits, and says so"
            narrow.widen(5 * KIB)
            await asyncio.sleep(0.1)
        assert not connection.unsent_bytes
        assert not client._unsent
        assert len(cast(bytes, client._unsent.obj)) == 0, "nothing of what was sent is kept"
        assert not client._outgoing.pending
        head = await receiving
        assert head is not None
        assert head.size_bytes == len(message)
        assert bytes(await other.receive_body(len(message))) == message

    on_virtual_time(send())


def test_little_more_is_taken_from_the_kernel_than_is_asked_for(ends: Ends) -> None:
    async def receive() -> None:
        client, served, _, theirs = await ends.agree(Random(5))
        client.send((b"y" * 60_000,))
        await asyncio.sleep(1)
        before = len(theirs._arrived)
        memory = memoryview(bytearray(HEAD_SIZE))
        # The first look may find a part of a record only.
        assert HEAD_SIZE in (served.receive_into(memory), served.receive_into(memory))
        assert before - len(theirs._arrived) <= 34 * KIB

    on_virtual_time(receive())


def test_what_tls_has_taken_already_wakes_whoever_waits(ends: Ends) -> None:
    """Below there is nothing left to tell of it."""

    async def receive() -> None:
        client, served, _, theirs = await ends.agree(Random(11))
        sent = 0
        for _ in range(100):
            sent += client.send((b"y" * 100,))
            await asyncio.sleep(0.1)
        memory = memoryview(bytearray(100))
        # All of it is taken from below, and little of it by whoever reads.
        for _ in range(sent // 100):
            assert served.receive_into(memory)
            if not theirs._arrived:
                break
        assert served._incoming.pending or served._tls.pending()
        woken = asyncio.Event()
        served.call_when_readable(woken.set)
        async with asyncio.timeout(5):
            await woken.wait()
        assert served.receive_into(memory)

    on_virtual_time(receive())


def test_what_tls_itself_has_to_say_is_said_and_not_without_end(ends: Ends) -> None:
    async def talk() -> None:
        client, served, _, _ = await ends.agree(Random(12))
        memory = memoryview(bytearray(100))
        client._tls.write(b"as an answer of TLS's own")
        assert client.receive_into(memory) is None
        found = b""
        while not found:
            await asyncio.sleep(0.1)
            count = served.receive_into(memory)
            found = bytes(memory[: count or 0])
        assert found == b"as an answer of TLS's own"

        for _ in range(30):
            client._tls.write(bytes(16 * KIB))
        with pytest.raises(ConnectionAbortedError):
            client.receive_into(memory)

    on_virtual_time(talk())


@pytest.mark.parametrize(
    "what", ["host", "common name", "client unknown", "server unknown", "no certificate"]
)
def test_who_is_not_vouched_for_is_not_let_in(
    what: str, authority: Authority, ends: Ends, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path / "stranger")
    client, server = ends.client, ends.server
    if what == "host":
        server = Tls(authority.files("elsewhere", "bookie.example"))
    elif what == "common name":
        # It is who somebody is, and no host.
        server = Tls(authority.files_of_names("named", [HOST]))
    elif what == "client unknown":
        # It trusts the server, which does not know who vouches for it.
        unknown = stranger.files("task")
        client = Tls(
            type(unknown)(str(authority.trust_path), unknown.certificate_path, unknown.key_path)
        )
    elif what == "server unknown":
        client = Tls(stranger.files("task"))
    else:
        client = Tls(authority.trust_only)

    async def meet() -> None:
        ours, theirs = connected(Random(6))
        context = server.server_context(wants_certificate=True)

        async def talk() -> None:
            stream = await secure(ours, client.client_context(), HOST)
            # Over TLS 1.3 a client learns by its first read that its certificate is not taken.
            await take(stream, 1, Random(0))

        async with asyncio.timeout(60):
            both = asyncio.gather(talk(), secure(theirs, context), return_exceptions=True)
            for outcome in await both:
                assert isinstance(outcome, OSError), outcome

    on_virtual_time(meet())


def test_a_server_may_do_without_certificates_of_clients(authority: Authority, ends: Ends) -> None:
    async def meet() -> None:
        known = Ends(Tls(authority.trust_only), ends.server)
        client, served, _, _ = await known.agree(Random(7), wants_certificate=False)
        assert (client.common_name, served.common_name) == ("bookie", "")
        client, served, _, _ = await ends.agree(Random(8))
        assert (client.common_name, served.common_name) == ("bookie", "task")

    on_virtual_time(meet())


@pytest.mark.parametrize("speaks_tls", ["client", "server"])
def test_clear_text_is_not_taken_for_tls(speaks_tls: str, ends: Ends) -> None:
    async def meet() -> None:
        ours, theirs = connected(Random(9))
        if speaks_tls == "client":
            securing = secure(ours, ends.client.client_context(), HOST)
            theirs.send((b"\0\1\0\0hello, this is clear text",))
        else:
            securing = secure(theirs, ends.server.server_context(wants_certificate=True))
            ours.send((b"\0\1\0\0hello, this is clear text",))
        async with asyncio.timeout(60):
            with pytest.raises(OSError):
                await securing

    on_virtual_time(meet())


def test_a_connection_that_breaks_over_tls_says_so(ends: Ends) -> None:
    async def break_off() -> None:
        client, served, ours, _ = await ends.agree(Random(10))
        connection, other = Connection(client), Connection(served)
        receiving = asyncio.create_task(other.receive_head())
        await asyncio.sleep(1)
        ours.break_off()
        with pytest.raises(ConnectionEndedError):
            await receiving
        connection.send(Kind.FRAME, (b"z" * 100,))
        with pytest.raises(ConnectionEndedError):
            await connection.drain()

    on_virtual_time(break_off())
