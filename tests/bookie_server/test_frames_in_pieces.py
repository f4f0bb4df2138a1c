"""Frames in pieces over gRPC as it is: what comes is stored whole or not at all, and nobody blocks the others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from bookie_server.bookie import Bookie
from bookie_server.client.grpc_client import CHANNEL_OPTIONS, GrpcBookieClient
from bookie_server.client.settings import ConnectionSettings
from bookie_server.memory import frames
from bookie_server.serving.grpc_service import SERVER_OPTIONS, SERVICE, GrpcService
from bookie_server.serving.service import BookieService
from bookie_server.wire import add_frames
from bookie_server.wire.limits import FRAME_SIZE_MAX, PIECE_SIZE_MAX, PIECE_SIZE_MIN
from bookie_server.wire.messages import BookieInfo, Status
from bookie_server.wire.pieces import messages_of
from tests.doubles.records import encoded_section, write
from tests.doubles.storage import running_bookie
from tests.doubles.waits import until
from tests.patience import seconds

pytestmark = pytest.mark.integration

MIB = 1024 * 1024
LARGE = encoded_section([bytes(3 * MIB)], ledger_id=8).data
PIECES = [*messages_of(LARGE)]


@dataclass
class Served:
    """A bookie behind a port."""

    bookie: Bookie
    service: BookieService
    address: str
    channels: list[grpc.aio.Channel] = field(default_factory=list)

    def open(self) -> Any:
        """A stream of adds on a connection of its own."""
        channel = grpc.aio.insecure_channel(self.address, options=CHANNEL_OPTIONS)
        # One that nobody holds is closed, under its calls.
        self.channels.append(channel)
        return channel.stream_stream(f"/{SERVICE}/Write")(timeout=seconds(20))

    @property
    def used_bytes(self) -> int:
        return self.service.memory.budget.used_bytes + self.service.memory.promises.used_bytes

    @property
    def ledgers(self) -> set[int]:
        return set(self.bookie.storage.contents.ledgers)


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with running_bookie(tmp_path, adds_in_progress_bytes_max=FRAME_SIZE_MAX) as bookie:
        server = grpc.aio.server(options=SERVER_OPTIONS)
        port = server.add_insecure_port("127.0.0.1:0")
        service = BookieService(bookie, BookieInfo("b:1"), str(tmp_path))
        server.add_generic_rpc_handlers((GrpcService(service).handler(),))
        await server.start()
        served = Served(bookie, service, f"127.0.0.1:{port}")
        yield served
        for channel in served.channels:
            await channel.close()
        await server.stop(0)


async def outcome(call: Any, *messages: bytes) -> tuple[list[Status], grpc.StatusCode]:
    """Send all of it, say that this is the end, and take the answers and the end of the call."""
    # It may be refused before all is sent.
    with suppress(grpc.RpcError, asyncio.InvalidStateError):
        for message in messages:
            await call.write(message)
        await call.done_writing()
    statuses: list[Status] = []
    with suppress(grpc.RpcError):
        while (data := await call.read()) is not grpc.aio.EOF:
            statuses += [part.status for part in add_frames.parse_write_reply(data)]
    return statuses, await call.code()


async def test_entries_of_every_size_are_stored(served: Served) -> None:
    client = GrpcBookieClient("b:1", served.address, ConnectionSettings(add_timeout_ms=60_000))
    sizes = (1, PIECE_SIZE_MAX - 300, PIECE_SIZE_MAX + 1, MIB, 5 * MIB - 1_000)
    answers = [
        write(client, encoded_section([bytes(size)], ledger_id=ledger_id))
        for ledger_id, size in enumerate(sizes)
    ]

    assert await asyncio.gather(*answers) == [Status.OK] * len(sizes)

    await client.close()
    assert served.ledgers == set(range(len(sizes)))
    await until(lambda: served.used_bytes == 0)


async def test_a_message_larger_than_a_piece_is_refused(served: Served) -> None:
    assert await outcome(served.open(), LARGE) == ([], grpc.StatusCode.RESOURCE_EXHAUSTED)
    assert served.ledgers == set()


@pytest.mark.parametrize(
    "messages",
    [
        [b"\xff\xff\xff\xff" + (FRAME_SIZE_MAX + 1).to_bytes(4) + bytes(PIECE_SIZE_MIN)],
        [*PIECES[:-1], bytes(PIECE_SIZE_MAX)],
        [PIECES[0], b"crumb"],
        [*messages_of(bytes(len(LARGE)))],
    ],
    ids=["too large", "overshoot", "crumb", "no frame"],
)
async def test_pieces_of_no_frame_end_their_stream(served: Served, messages: list[bytes]) -> None:
    """What came before them is answered, and nothing of them has an effect."""
    good = encoded_section([b"x"]).data

    found = await outcome(served.open(), good, *messages)

    assert found == ([Status.OK], grpc.StatusCode.INVALID_ARGUMENT)
    assert served.ledgers == {7}
    await until(lambda: served.used_bytes == 0)


async def test_a_stream_that_ends_within_a_frame_leaves_nothing(served: Served) -> None:
    good = encoded_section([b"x"]).data

    found = await outcome(served.open(), good, *PIECES[:-1])

    assert found == ([Status.OK], grpc.StatusCode.OK)
    assert served.ledgers == {7}
    await until(lambda: served.used_bytes == 0)


async def test_who_announces_a_frame_and_sends_nothing_makes_way_for_others(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alone, it may take its time."""
    monkeypatch.setattr(frames, "STALLED_AFTER_S", 0.01)
    first, *rest = messages_of(encoded_section([bytes(5 * MIB - 1_000)]).data)
    slow, stalled = served.open(), served.open()
    await slow.write(first)
    await until(lambda: served.used_bytes > 5 * MIB)
    await asyncio.sleep(0.05)
    for message in rest:
        await slow.write(message)
    assert add_frames.parse_write_reply(await slow.read())[0].status is Status.OK
    await outcome(slow)
    await until(lambda: served.used_bytes <= PIECE_SIZE_MAX)
    await stalled.write(first)
    await until(lambda: served.used_bytes > 5 * MIB)

    # Not stalled: in the middle of a frame its sender may be slow, but here it is on the same loop.
    monkeypatch.setattr(frames, "STALLED_AFTER_S", seconds(10))
    found = await outcome(served.open(), *messages_of(LARGE))

    assert found == ([Status.OK], grpc.StatusCode.OK)
    assert await outcome(stalled) == ([], grpc.StatusCode.RESOURCE_EXHAUSTED)
    await until(lambda: served.used_bytes == 0)


async def test_a_frame_that_waits_for_room_when_the_bookie_drains_is_dropped(
    served: Served,
) -> None:
    """It was admitted, when nobody waited for answers any more; its writer sends it again elsewhere."""
    with served.service.memory.budget.room("other") as room:
        await room.take(FRAME_SIZE_MAX - frames.EXPECTED_MIN)
        call = served.open()
        await call.write(encoded_section([bytes(2 * frames.EXPECTED_MIN)]).data)
        await until(lambda: served.service.memory.budget.waiting_count == 1)
        served.service.is_draining = True

    assert await outcome(call) == ([], grpc.StatusCode.OK)
    assert served.ledgers == set()
