"""A bookie's socket, spoken to without a client of ours, and what it acknowledged there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import grpc

from bookie_server.service import SERVICE
from bookie_server.wire import add_frames, codec
from bookie_server.wire import bookie_pb2 as pb
from bookie_server.wire.messages import ReadRequest, Section, Status
from bookie_server.wire.pieces import messages_of
from bookie_server.wire.record import RECORD_OVERHEAD, Run, parse_header
from spark_bookkeeper.local.bookie import LocalBookie
from tests.patience import seconds

REFUSED = {
    grpc.StatusCode.INVALID_ARGUMENT,  # no request
    grpc.StatusCode.RESOURCE_EXHAUSTED,  # larger than any message
}
Entry = tuple[int, bytes]
"""Cumulative length, and what follows the header except the digest's bytes."""


class Answers:
    """What was acknowledged, by ledger and entry."""

    def __init__(self) -> None:
        self.acknowledged: dict[tuple[int, int], set[Entry]] = {}
        self.statuses: dict[Status | grpc.StatusCode, int] = {}

    def count(self, status: Status | grpc.StatusCode) -> None:
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
            call = self._channel.stream_stream(f"/{SERVICE}/Write")
            for data in call(iter(messages), timeout=seconds(self._timeout_s)):
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
            call = self._channel.stream_stream(f"/{SERVICE}/Read")
            for data in call(iter(requests), timeout=seconds(self._timeout_s)):
                _, reply = codec.parse_read_reply(data)
                for part in reply.missing:
                    self._answers.count(part.status)

    def ask(self, method: str, data: bytes) -> bytes | None:
        """The bytes of a reply; ``None`` where it was refused."""
        replies: list[bytes] = []
        with self._refusals():
            call = self._channel.unary_unary(f"/{SERVICE}/{method}")
            replies.append(call(data, timeout=seconds(self._timeout_s)))
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
            call = self._channel.stream_stream(f"/{SERVICE}/Read")
            (data,) = call(
                iter([codec.encode_read_request(1, request)]), timeout=seconds(self._timeout_s)
            )
            (run,) = codec.parse_read_reply(data)[1].runs
            found |= entries_of(run)
            first = run.last_entry + 1
        return found


@contextmanager
def connected(bookie: LocalBookie, answers: Answers, timeout_s: float = 30) -> Iterator[Socket]:
    """A connection for the block."""
    connection = Socket(bookie.port, answers, timeout_s)
    try:
        yield connection
    finally:
        connection.close()
