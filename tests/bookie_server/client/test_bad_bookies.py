"""A client of bookies that break the protocol on the wire: each question gets one sound answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import grpc.aio
import pytest

from bookie_server.client.grpc_client import SERVICE, GrpcBookieClient
from bookie_server.client.settings import ConnectionSettings
from bookie_server.wire import add_frames
from bookie_server.wire import bookie_pb2 as pb
from bookie_server.wire.digest import master_key
from bookie_server.wire.messages import ReadLacRequest, ReadRequest, SectionReply, Status
from tests.doubles.records import encoded_section
from tests.doubles.waits import until
from tests.patience import seconds

pytestmark = pytest.mark.integration

LEDGER = 7
TIMEOUT_S = seconds(0.4)
LATE_S = 1.5 * TIMEOUT_S
SETTINGS = ConnectionSettings(
    add_timeout_ms=int(1000 * TIMEOUT_S),
    read_timeout_ms=int(1000 * TIMEOUT_S),
    reconnect_timeout_ms=int(500 * TIMEOUT_S),
)
OVERSIZED = [("grpc.max_send_message_length", -1)]
OK = SectionReply(LEDGER, 0, 0, False, Status.OK)

Answers = Callable[[bytes], list[bytes | float]]
"""For a frame or request: messages to send back, and seconds to wait in between."""


class BadBookie:
    """Answers every stream and call with whatever it is told to."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self.frames: list[bytes] = []

    def handler(self) -> grpc.GenericRpcHandler:
        stream = grpc.stream_stream_rpc_method_handler(self._stream)
        unary = grpc.unary_unary_rpc_method_handler(self._unary)
        return grpc.method_handlers_generic_handler(
            SERVICE, {"Write": stream, "Read": stream, "ReadLac": unary}
        )

    async def _stream(self, frames: AsyncIterator[bytes], _: object) -> AsyncIterator[bytes]:
        async for frame in frames:
            self.frames.append(frame)
            for answer in self._answers(frame):
                if isinstance(answer, float):
                    await asyncio.sleep(answer)
                else:
                    yield answer

    async def _unary(self, request: bytes, _: object) -> bytes:
        (answer,) = self._answers(request)
        assert isinstance(answer, bytes)
        return answer


@asynccontextmanager
async def client_of(answers: Answers) -> AsyncIterator[tuple[GrpcBookieClient, BadBookie]]:
    server, bookie = grpc.aio.server(options=OVERSIZED), BadBookie(answers)
    server.add_generic_rpc_handlers((bookie.handler(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    client = GrpcBookieClient("bad:1", f"127.0.0.1:{port}", SETTINGS)
    try:
        yield client, bookie
    finally:
        await client.close()
        await server.stop(None)


def written(*replies: SectionReply) -> bytes:
    return add_frames.encode_write_reply(replies)


def unknown_status() -> bytes:
    """What a later version may say."""
    reply = pb.WriteReply()
    reply.ParseFromString(written(OK))
    reply.sections[0].status = 99  # type: ignore[assignment]
    return reply.SerializeToString()


WRONG_LEDGER = SectionReply(LEDGER + 1, 0, 0, False, Status.OK)
WRONG_ENTRY = SectionReply(LEDGER, 5, 5, False, Status.OK)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        pytest.param([written(OK)], Status.OK, id="sound"),
        pytest.param([written(OK), written(OK), written(OK, OK)], Status.OK, id="several times"),
        pytest.param([written(WRONG_LEDGER)], Status.UNREACHABLE, id="of another ledger"),
        pytest.param([written(WRONG_ENTRY)], Status.UNREACHABLE, id="of another entry"),
        pytest.param([written(WRONG_LEDGER, WRONG_ENTRY, OK)], Status.OK, id="among others"),
        pytest.param([unknown_status()], Status.UNKNOWN, id="of a later version"),
        pytest.param([b"\xff" * 40], Status.UNREACHABLE, id="garbage"),
        pytest.param([bytes(9 * 1024 * 1024)], Status.UNREACHABLE, id="oversized"),
        pytest.param([], Status.UNREACHABLE, id="never"),
        pytest.param([LATE_S, written(OK)], Status.UNREACHABLE, id="after the deadline"),
    ],
)
async def test_an_add_is_answered_once_whatever_a_bookie_says(
    answers: list[bytes | float], expected: Status
) -> None:
    async with client_of(lambda _: answers) as (client, _):
        told: list[Status] = []
        client.write(encoded_section([b"x"]), told.append)
        await until(lambda: bool(told), 10)
        await asyncio.sleep(0.05)  # what comes later must change nothing

        assert told == [expected]


@pytest.mark.slow
@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"\xff" * 40, id="garbage"),
        pytest.param(bytes(9 * 1024 * 1024), id="oversized"),
        pytest.param(b"", id="empty"),
    ],
)
async def test_a_read_or_lac_answered_with_nonsense_is_unreachable(answer: bytes) -> None:
    """Never "no such entry": nothing was said about it."""
    async with client_of(lambda _: [answer]) as (client, _), asyncio.timeout(seconds(10)):
        reply = await client.read(ReadRequest(ledger_id=LEDGER, first_entry=0, last_entry=3))
        lac = await client.read_lac(ReadLacRequest(LEDGER, True, master_key(b"")))

        assert reply.runs == ()
        assert {part.status for part in reply.missing} == {Status.UNREACHABLE}
        assert not lac.status.is_evidence_of_absence
        assert lac.status is not Status.OK


@pytest.mark.slow
async def test_a_bookie_that_comes_to_its_senses_is_used_again() -> None:
    """After a stream of nonsense the next connection sends what was not answered."""
    asked: list[bytes] = []

    def answers(frame: bytes) -> list[bytes | float]:
        asked.append(frame)
        return [b"\xff" * 40] if len(asked) == 1 else [written(OK)]

    async with client_of(answers) as (client, bookie):
        told: list[Status] = []
        client.write(encoded_section([b"x"]), told.append)
        await until(lambda: bool(told), 10)

        assert told == [Status.OK]
        assert bookie.frames[0] == bookie.frames[1]
