"""Long polls over sockets: no more of them are taken than there are places for, whoever sends them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bookie_server.serving import service as service_module
from bookie_server.wire import codec
from bookie_server.wire.envelope import Kind, Purpose
from bookie_server.wire.messages import LongPoll, ReadLacRequest, Status
from bookkeeper_metadata.foundation.tasks import end_tasks
from tests.doubles.raw_sockets import message
from tests.doubles.records import encoded_section
from tests.doubles.served_sockets import serving_sockets, tasks_of_connections
from tests.doubles.waits import until

pytestmark = pytest.mark.integration

POLL = codec.encode_read_lac_request(
    ReadLacRequest(7, long_poll=LongPoll(previous_lac=-1, timeout_ms=20_000))
)


async def test_many_connections_may_not_have_a_thousand_polls_with_news_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each waits for room as a task, of four kilobytes that nobody counts."""
    monkeypatch.setattr(service_module, "PLACES_SHARED", 500)
    large = bytes(1024 * 1024)
    lac = codec.encode_read_lac_request(ReadLacRequest(7))
    async with serving_sockets(tmp_path, reads_in_progress_bytes_max=8 * 1024 * 1024) as served:
        writer = await served.open(Purpose.ADDS)
        frame = [encoded_section([large], 0), encoded_section([b"x"], 1, lac=0)]
        await writer.send(message(Kind.FRAME, b"".join(each.data for each in frame)))
        await writer.take()
        asked = b"".join(message(Kind.READ_LAC, POLL, number) for number in range(2_000))
        peers = [await served.open(Purpose.REQUESTS, takes_little=True) for _ in range(10)]
        sending = [asyncio.create_task(peer.send(asked)) for peer in peers]
        most = 500 + 10 * service_module.PLACES_OF_EACH
        await until(lambda: tasks_of_connections().count("answer") >= most)
        await asyncio.sleep(0.1)
        assert tasks_of_connections().count("answer") <= most
        # What waits for nobody is answered; so is the first poll of who has had none.
        other = await served.open(Purpose.REQUESTS)
        await other.send(message(Kind.READ_LAC, lac, 1))
        assert codec.parse_read_lac_reply((await other.take()).body).status is Status.OK
        await other.send(message(Kind.READ_LAC, POLL, 2))
        assert codec.parse_read_lac_reply((await other.take()).body).status is Status.OK
        await end_tasks(sending)
    assert not tasks_of_connections()


async def test_who_has_too_many_polls_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_module, "PLACES_SHARED", 0)
    async with serving_sockets(tmp_path) as served:
        peer = await served.open(Purpose.REQUESTS)
        count = service_module.PLACES_OF_EACH
        await peer.send(*(message(Kind.READ_LAC, POLL, number) for number in range(count + 1)))
        told = await peer.take()
        assert (told.kind, told.number) == (Kind.READ_LAC_REPLY, count)
        assert codec.parse_read_lac_reply(told.body).status is Status.BUSY
        await peer.send(message(Kind.GIVE_UP, b"", 0))
        await until(lambda: tasks_of_connections().count("answer") == count - 1)
        await peer.send(message(Kind.READ_LAC, POLL, count + 2))
        await until(lambda: tasks_of_connections().count("answer") == count)
