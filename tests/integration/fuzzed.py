"""A bookie's socket, spoken to without a client of ours, and what it acknowledged there."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TypeAlias

import grpc

from bookie_server.serving.grpc_service import SERVICE
from bookie_server.wire import add_frames, codec
from bookie_server.wire import bookie_pb2 as pb
from bookie_server.wire.envelope import (
    HEAD_SIZE,
    REQUEST_KINDS,
    Hello,
    Kind,
    Purpose,
    Reason,
    encode_hello,
    parse_farewell,
    parse_head,
)
from bookie_server.wire.messages import Method, ReadRequest, Section, Status
from bookie_server.wire.pieces import messages_of
from bookie_server.wire.record import RECORD_OVERHEAD, Run, parse_header
from bookkeeper_metadata.endpoints import GRPC, SOCKET
from spark_bookkeeper.local.bookie import LocalBookie
from tests.doubles.raw_sockets import message
from tests.integration.processes import port_of
from tests.patience import seconds

REFUSED = {
    grpc.StatusCode.INVALID_ARGUMENT,  # no request
    grpc.StatusCode.RESOURCE_EXHAUSTED,  # larger than any message
}
Outcome: TypeAlias = Status | grpc.StatusCode | Reason
"""What is answered: a status of the protocol, or why the bookie would not go on."""
Entry = tuple[int, bytes]
"""Cumulative length, and what follows the header except the digest's bytes."""


class Answers:
    """What was acknowledged, by ledger and entry."""

    def __init__(self) -> None:
        self.acknowledged: dict[tuple[int, int], set[Entry]] = {}
        self.statuses: dict[Outcome, int] = {}

    def count(self, status: Outcome) -> None:
        """A status of the protocol; UNKNOWN would be a bookie in trouble."""
        self.statuses[status] = self.statuses.get(status, 0) + 1

    def add(self, section: Section) -> None:
        for entry_id, entry in entries_of(section.run):
            self.acknowledged.setdefault((section.ledger_id, entry_id), set()).add(entry)


def entries_of(run: Run) -> Iterator[tuple[int, Entry]]:
    """LAC and digest may differ from copy to copy, so of the rest the last bytes must do."""
    for index, entry_id in enumerate(run.entry_ids):
        record = bytes(run.record(index))
        yield entry_id, (parse_header(record).length, record[RECORD_OVERHEAD + 20 :])


class Socket:
    """One connection; ``answers`` has what came over it."""

    def __init__(self, port: int, answers: Answers, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._answers = answers
        self._channel = grpc.insecure_channel(
            f"127.0.0.1:{port}", options=(("grpc.use_local_subchannel_pool", 1),)
        )

    def close(self) -> None:
        self._channel.close()

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        """A refusal ends the block; nothing else may."""
        try:
            yield
        except grpc.RpcError as error:
            self._refused(error, REFUSED)

    def _refused(self, error: grpc.RpcError, allowed: set[grpc.StatusCode]) -> None:
        assert error.code() in allowed, error
        self._answers.count(error.code())

    def _stream(self, method: str, messages: Sequence[bytes]) -> Iterator[bytes]:
        """What comes back when these are sent, to the end."""
        call = self._channel.stream_stream(f"/{SERVICE}/{method}")
        return iter(call(iter(messages), timeout=seconds(self._timeout_s)))

    def _unary(self, method: str, data: bytes) -> bytes:
        call = self._channel.unary_unary(f"/{SERVICE}/{method}")
        return bytes(call(data, timeout=seconds(self._timeout_s)))

    def write(self, frames: Sequence[bytes]) -> None:
        """Send frames on one stream, each as the messages that carry it, and take all answers."""
        self.write_messages(frames, [part for frame in frames for part in messages_of(frame)])

    def write_messages(self, frames: Sequence[bytes], messages: Sequence[bytes]) -> None:
        """Send messages on one stream; only of these frames may anything be acknowledged."""
        sent: dict[tuple[int, int, int, bool], list[Section]] = {}
        for frame in frames:
            try:
                for section in add_frames.sections_of(frame):
                    reply = section.reply(Status.OK)
                    key = (reply.ledger_id, reply.first_entry, reply.last_entry, reply.is_recovery)
                    sent.setdefault(key, []).append(section)
            except codec.MalformedFrameError:
                break
        with self._refusals():
            for data in self._stream("Write", messages):
                for part in add_frames.parse_write_reply(data):
                    self._answers.count(part.status)
                    key = (part.ledger_id, part.first_entry, part.last_entry, part.is_recovery)
                    candidates = sent[key]
                    # Two of one name on a stream: whichever it was, one of them is stored.
                    if part.status is Status.OK:
                        for section in candidates:
                            self._answers.add(section)

    def write_and_go(self, frames: Sequence[bytes]) -> None:
        """Send frames and cut the stream, whatever the bookie is doing."""
        call = self._channel.stream_stream(f"/{SERVICE}/Write")(iter(frames))
        call.cancel()

    def read(self, requests: Sequence[bytes]) -> None:
        """Send reads on one stream; each that is answered comes back with its id."""
        with self._refusals():
            for data in self._stream("Read", requests):
                _, reply = codec.parse_read_reply(data)
                for part in reply.missing:
                    self._answers.count(part.status)

    def ask(self, method: str, data: bytes) -> bytes | None:
        """The bytes of a reply; ``None`` where it was refused."""
        replies: list[bytes] = []
        with self._refusals():
            replies.append(self._unary(method, data))
        return replies[0] if replies else None

    def poll(self, data: bytes) -> None:
        """A LAC read, which may wait for half a minute if it was asked to."""
        call = self._channel.unary_unary(f"/{SERVICE}/ReadLac")
        try:
            self._answers.count(codec.parse_read_lac_reply(call(data, timeout=0.05)).status)
        except grpc.RpcError as error:
            self._refused(error, {*REFUSED, grpc.StatusCode.DEADLINE_EXCEEDED})

    def entries(self, ledger_id: int) -> dict[int, Entry]:
        """Everything the bookie has of a ledger, by its list and reads."""
        found: dict[int, Entry] = {}
        first_entry: int | None = 0
        while first_entry is not None:
            request = pb.ListEntriesRequest(
                ledger_id=ledger_id, first_entry=first_entry, ranges_max=100
            )
            reply = self.ask("ListEntries", request.SerializeToString())
            assert reply is not None
            page = codec.parse_entry_list(reply)
            assert page.status in (Status.OK, Status.NO_LEDGER), page.status
            for part in page.held:
                found |= self._read_range(ledger_id, part.first_entry, part.last_entry)
            first_entry = page.next_entry or None
        return found

    def _read_range(self, ledger_id: int, first: int, last: int) -> dict[int, Entry]:
        found: dict[int, Entry] = {}
        while first <= last:
            request = ReadRequest(ledger_id=ledger_id, first_entry=first, last_entry=last)
            (data,) = self._stream("Read", [codec.encode_read_request(1, request)])
            (run,) = codec.parse_read_reply(data)[1].runs
            found |= entries_of(run)
            first = run.last_entry + 1
        return found


class _Farewell(Exception):
    """The bookie ended the connection and said why."""

    def __init__(self, reason: Reason) -> None:
        self.reason = reason


class PlainSocket(Socket):
    """The same without gRPC: a connection for each stream and each request."""

    def __init__(self, port: int, answers: Answers, timeout_s: float) -> None:
        self._port = port
        self._timeout_s = timeout_s
        self._answers = answers

    def close(self) -> None:
        """Nothing is open."""

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        try:
            yield
        except _Farewell as farewell:
            self._answers.count(farewell.reason)

    def _stream(self, method: str, messages: Sequence[bytes]) -> Iterator[bytes]:
        kind = Kind.FRAME if method == "Write" else Kind.READ
        return self._talk([message(kind, data) for data in messages])

    def _unary(self, method: str, data: bytes) -> bytes:
        kind = REQUEST_KINDS[Method(method)]
        return next(self._talk([message(kind, data, number=1)]))

    def write_messages(self, frames: Sequence[bytes], messages: Sequence[bytes]) -> None:
        # Pieces are gRPC's; here a frame is whole, or it is none.
        super().write_messages(frames, frames)

    def write_and_go(self, frames: Sequence[bytes]) -> None:
        sent = b"".join(message(Kind.FRAME, frame) for frame in frames)
        with self._connected(Kind.FRAME) as connection:
            connection.sendall(sent[: len(sent) * 2 // 3])

    def poll(self, data: bytes) -> None:
        with self._refusals(), self._connected(Kind.READ_LAC) as connection:
            connection.settimeout(0.05)
            try:
                connection.sendall(message(Kind.READ_LAC, data))
                for kind, reply in _received(connection):
                    if kind is Kind.READ_LAC_REPLY:
                        self._answers.count(codec.parse_read_lac_reply(reply).status)
                    break
            except TimeoutError:
                pass  # it waits for news

    def _talk(self, messages: Sequence[bytes]) -> Iterator[bytes]:
        kind = Kind.READ_LAC
        if messages:
            kind = Kind(int.from_bytes(messages[0][:2]))
        with self._connected(kind) as connection:
            connection.settimeout(seconds(self._timeout_s))
            # What is refused is not read to its end.
            with suppress(ConnectionError):
                for message in messages:
                    connection.sendall(message)
                # Whoever wants an answer to a single request waits for it; all others are told with the end.
                if kind in (Kind.FRAME, Kind.READ):
                    connection.shutdown(socket.SHUT_WR)
            for _, body in _received(connection):
                yield body

    @contextmanager
    def _connected(self, kind: Kind) -> Iterator[socket.socket]:
        purpose = Purpose.ADDS if kind is Kind.FRAME else Purpose.REQUESTS
        hello = encode_hello(Hello("", "", "fuzz", purpose))
        with socket.create_connection(("127.0.0.1", self._port)) as connection:
            connection.settimeout(seconds(self._timeout_s))
            connection.sendall(message(Kind.HELLO, hello))
            yield connection


def _received(connection: socket.socket) -> Iterator[tuple[Kind, bytes]]:
    """Messages up to the end; the welcome is none of them. A farewell is raised."""
    with connection.makefile("rb") as incoming, suppress(ConnectionError):
        while head := incoming.read(HEAD_SIZE):
            found = parse_head(head)
            body = incoming.read(found.size_bytes)
            if found.kind is Kind.FAREWELL:
                reason, _ = parse_farewell(body)
                assert reason is not None
                raise _Farewell(reason)
            # A request that is none comes to nothing.
            if found.kind is Kind.NOTHING:
                raise _Farewell(Reason.MALFORMED)
            if found.kind is not Kind.WELCOME:
                yield found.kind, body


CARRIERS: dict[str, type[Socket]] = {GRPC: Socket, SOCKET: PlainSocket}


@contextmanager
def connected(
    bookie: LocalBookie, answers: Answers, timeout_s: float = 30, *, carrier: str = GRPC
) -> Iterator[Socket]:
    """A connection for the block."""
    connection = CARRIERS[carrier](port_of(bookie, carrier), answers, timeout_s)
    try:
        yield connection
    finally:
        connection.close()
