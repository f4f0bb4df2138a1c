"""How streams end: whatever a client sent before is answered, over gRPC as it is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import grpc
import grpc.aio
import pytest

from bookie_server.bookie import Bookie
from bookie_server.serving.grpc_service import SERVICE, GrpcService
from bookie_server.serving.service import BookieService
from bookie_server.wire import add_frames, codec
from bookie_server.wire.messages import BookieInfo, ReadRequest, Status
from bookkeeper_metadata.model import DigestType
from tests.doubles.records import encoded_section
from tests.doubles.storage import running_bookie
from tests.patience import seconds

pytestmark = pytest.mark.integration

READ = codec.encode_read_request(1, ReadRequest(ledger_id=7, first_entry=0, last_entry=9))
READS = 200
"""More than are served at once."""


@pytest.fixture
async def channel(tmp_path: Path) -> AsyncIterator[tuple[Bookie, grpc.aio.Channel]]:
    async with running_bookie(tmp_path) as bookie:
        server = grpc.aio.server()
        port = server.add_insecure_port("127.0.0.1:0")
        service = BookieService(bookie, BookieInfo("b:1"), str(tmp_path))
        server.add_generic_rpc_handlers((GrpcService(service).handler(),))
        await server.start()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as connected:
            yield bookie, connected
        await server.stop(0)


async def replies(channel: grpc.aio.Channel, method: str, messages: list[bytes]) -> list[bytes]:
    """What comes back when all is sent at once, up to the end of the call or its refusal."""
    found: list[bytes] = []
    call = channel.stream_stream(f"/{SERVICE}/{method}")(iter(messages), timeout=seconds(10))
    try:
        async for data in call:
            found.append(data)
    except grpc.aio.AioRpcError as error:
        if error.code() is not grpc.StatusCode.INVALID_ARGUMENT:
            raise
    return found


@pytest.mark.parametrize("last", [[], [b"no request"]], ids=["end", "malformed"])
async def test_reads_are_answered_when_no_more_follow(
    channel: tuple[Bookie, grpc.aio.Channel], last: list[bytes]
) -> None:
    """They were cancelled, and where one was on its way out the call never ended."""
    bookie, connected = channel
    await replies(connected, "Write", [encoded_section([bytes(100_000)] * 10).data])
    slow = asyncio.Event()
    answer = bookie.read

    async def read(*arguments: Any) -> object:
        await slow.wait()
        return await answer(*arguments)

    bookie.read = read  # type: ignore[method-assign,assignment]
    asyncio.get_running_loop().call_later(0.1, slow.set)

    found = await replies(connected, "Read", [READ] * 3 + last)

    assert len(found) == 3
    assert len(codec.parse_read_reply(found[0])[1].runs[0]) == 10
    assert len(await replies(connected, "Read", [READ] * READS)) == READS


async def test_adds_before_a_malformed_frame_are_answered(
    channel: tuple[Bookie, grpc.aio.Channel],
) -> None:
    """Frames in front of it were admitted, so its writer hears of them."""
    _, connected = channel
    frames = [encoded_section([b"x"], entry_id).data for entry_id in range(20)]

    found = await replies(connected, "Write", [*frames, b"no frame at all"])

    answers = [part for data in found for part in add_frames.parse_write_reply(data)]
    assert [part.status for part in answers] == [Status.OK] * 20


async def test_a_stream_ends_although_others_go_on_writing(
    channel: tuple[Bookie, grpc.aio.Channel],
) -> None:
    """It waited for everything that anybody had on the way to the disk."""
    bookie, connected = channel
    bookie.wait_until_settled = Mock(side_effect=asyncio.Event().wait)  # type: ignore[method-assign]

    found = await replies(connected, "Write", [encoded_section([b"x"]).data])

    assert [part.status for part in add_frames.parse_write_reply(found[0])] == [Status.OK]


async def test_a_section_beyond_a_limit_is_refused_by_itself(
    channel: tuple[Bookie, grpc.aio.Channel],
) -> None:
    """Nothing of it is stored, no key is bound, and its neighbours in the frame are served."""
    bookie, connected = channel
    good = encoded_section([b"x"]).data
    (bad,) = add_frames.parse_frame(encoded_section([b"x"], ledger_id=8).data)
    header = add_frames.encode_section_header(8, b"short", DigestType.CRC32C)

    found = await replies(
        connected, "Write", [add_frames.encode_section(header, [bad.run.data]) + good]
    )

    answers = [part for data in found for part in add_frames.parse_write_reply(data)]
    refused, accepted = sorted(answers, key=lambda part: -part.ledger_id)
    assert (refused.ledger_id, refused.status) == (8, Status.BAD_REQUEST)
    assert (accepted.ledger_id, accepted.status) == (7, Status.OK)
    assert set(bookie.storage.contents.ledgers) == {7}
