"""A bookie towards clients that speak Apache's protocol: what they ask at once, cut anywhere, wrongly, or without an end."""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path
from random import Random

import pytest

from bookie_server.serving.rpc.requests import REQUESTS_IN_FLIGHT_MAX
from bookie_server.wire.limits import ENTRY_SIZE_MAX
from bookie_server.wire.record import RECORD_OVERHEAD
from bookie_server.wire.rpc import messages, v2
from bookie_server.wire.rpc.frames import RPC_FRAME_SIZE_MAX
from bookie_server.wire.rpc.statuses import RpcStatus
from tests.bookie_server.rpc.asking import (
    LEDGER,
    MIB,
    PASSWORD_KEY,
    add,
    all_ok,
    answers_of,
    both_versions,
    entry,
    frame_of,
    read,
)
from tests.bookie_server.wire.rpc.transcripts import exchanges
from tests.doubles.rpc_peers import ServedRpc, serving_rpc
from tests.doubles.served_sockets import tasks_of_connections
from tests.doubles.waits import until

pytestmark = pytest.mark.integration


@both_versions
async def test_adds_that_come_together_are_one_section(served: ServedRpc, version: int) -> None:
    """A bookie is asked once for all of them, and each has its own answer."""
    peer = await served.connect()
    await peer.send(*(add(entry_id, b"x" * entry_id, version) for entry_id in range(100)))
    assert await answers_of(peer, 100, version) == all_ok(range(100))
    assert served.bookie.measures.added_entries == 100
    assert served.bookie.measures.adds.granted.count < 5


@both_versions
async def test_adds_that_cannot_be_one_section_are_answered_as_they_came(
    served: ServedRpc, version: int
) -> None:
    """Of another ledger, with another key, by recovery, backwards, and with gaps."""
    peer = await served.connect()
    recovery = messages.ADD_FLAG_RECOVERY
    await peer.send(
        add(0, b"a", version),
        add(2, b"b", version),
        add(1, b"c", version),
        add(3, b"d", version, key=bytes(20)),
        add(4, b"e", version, flag=recovery),
        add(5, b"f", version, ledger_id=8, key=bytes(20)),
        add(6, b"g", version),
    )
    found = dict(await answers_of(peer, 7, version))
    assert found == {each: RpcStatus.EUA if each == 3 else RpcStatus.EOK for each in range(7)}


@both_versions
@pytest.mark.parametrize("size", [1, 3, 7, 50, 100_000])
async def test_frames_cut_anywhere_are_put_together(
    served: ServedRpc, version: int, size: int
) -> None:
    peer = await served.connect()
    sent = b"".join(add(entry_id, b"y" * 30, version) for entry_id in range(20))
    sent += add(20, bytes(100_000), version) if size > 7 else b""
    for at in range(0, len(sent), size):
        await peer.send(sent[at : at + size])
        if size < 10:
            await asyncio.sleep(0)
    count = 21 if size > 7 else 20
    assert await answers_of(peer, count, version) == all_ok(range(count))


@both_versions
async def test_a_read_behind_an_add_finds_it(served: ServedRpc, version: int) -> None:
    peer = await served.connect()
    reads = (frame_of(messages.ReadEntry(LEDGER, 1), version, number=50),)
    await peer.send(add(0, b"a", version), add(1, b"b", version), *reads, add(2, b"c", version))
    found = await answers_of(peer, 4, version)
    assert sorted(found, key=lambda each: each[0]) == [
        (0, RpcStatus.EOK),
        (1, RpcStatus.EOK),
        (1, RpcStatus.EOK),
        (2, RpcStatus.EOK),
    ]


@both_versions
async def test_one_that_conflicts_is_refused_alone(served: ServedRpc, version: int) -> None:
    """Its neighbours, which came in the same section, are admitted one by one."""
    peer = await served.connect()
    assert (await peer.ask(add(5, b"the first", version))) is not None
    await peer.send(*(add(entry_id, b"a twin?", version) for entry_id in range(3, 8)))
    found = dict(await answers_of(peer, 5, version))
    assert found == {each: RpcStatus.EIO if each == 5 else RpcStatus.EOK for each in range(3, 8)}


@both_versions
async def test_the_largest_entry_is_stored_and_read(served: ServedRpc, version: int) -> None:
    payload = Random(1).randbytes(ENTRY_SIZE_MAX - RECORD_OVERHEAD)
    peer = await served.connect()
    await peer.send(add(0, payload, version), add(1, b"behind it", version))
    assert await answers_of(peer, 2, version) == all_ok(range(2))
    reader = await served.connect()
    found = await read(reader, 0)
    assert found.body == entry(0, payload)


async def test_a_fence_refuses_every_one_of_a_section(served: ServedRpc) -> None:
    peer = await served.connect()
    fence = messages.ReadEntry(LEDGER, -1, PASSWORD_KEY, flag=messages.READ_FLAG_FENCE)
    await peer.ask(frame_of(fence, 3))
    await peer.send(*(add(entry_id, b"late", 3) for entry_id in range(10)))
    found = await answers_of(peer, 10, 3)
    assert sorted(found) == [(entry_id, RpcStatus.EFENCED) for entry_id in range(10)]


async def test_a_large_frame_that_is_no_add_keeps_no_room(served: ServedRpc) -> None:
    for payload in (bytes(2 * MIB), bytes(70_000)):
        peer = await served.connect()
        assert await peer.ask(frame_of(messages.Authenticate(b"plugin", payload), 3)) is None
    await until(lambda: not served.used_bytes)
    peer = await served.connect()
    assert await peer.ask(frame_of(messages.Authenticate(b"plugin", bytes(60_000)), 3)) is not None
    await peer.send(add(0, bytes(2 * MIB), 3))
    assert await answers_of(peer, 1, 3) == all_ok([0])


async def test_what_comes_before_nonsense_is_answered(served: ServedRpc) -> None:
    """Behind it nothing on the connection means anything: it ends, as at Apache's bookies."""
    peer = await served.connect()
    await peer.send(
        *(add(each, b"x", 2) for each in range(5)), b"\x00\x00\x00\x02\x02\x09", add(9, b"z", 2)
    )
    assert await answers_of(peer, 5, 2) == all_ok(range(5))
    assert await peer.receive() is None
    assert served.bookie.measures.malformed_count == 1
    other = await served.connect()
    assert (await read(other, 4)).body is not None
    assert (await read(other, 9)).body is None


@pytest.mark.parametrize("length", [0, RPC_FRAME_SIZE_MAX, 2**31 - 1, 2**32 - 1])
async def test_a_length_no_frame_has_ends_the_connection(served: ServedRpc, length: int) -> None:
    """Before a byte of it is waited for."""
    peer = await served.connect()
    await peer.send(struct.pack(">I", length))
    assert await peer.receive() is None


async def test_clients_that_go_in_the_middle_leave_nothing(served: ServedRpc) -> None:
    for cut in (2, 10, 90_000, 3 * MIB):
        peer = await served.connect()
        await peer.send(add(0, bytes(4 * MIB), 2)[:cut])
        await asyncio.sleep(0)
        await peer.close()
    await until(lambda: not tasks_of_connections() and not served.used_bytes)
    assert not served.bookie.storage.contents.ledgers


async def test_whoever_announces_a_large_frame_and_sends_nothing_keeps_others_waiting_shortly(
    served: ServedRpc,
) -> None:
    """The room of frames that are under way is for those who send them."""
    silent = [await served.connect() for _ in range(4)]
    for peer in silent:
        await peer.send(add(0, bytes(4 * MIB), 2)[:70_000])
    peer = await served.connect()
    await peer.send(*(add(each, bytes(MIB), 3) for each in range(4)))
    assert await answers_of(peer, 4, 3) == all_ok(range(4))
    await peer.send(add(4, bytes(4 * MIB), 3))
    assert await answers_of(peer, 1, 3) == all_ok([4])


async def test_a_client_that_takes_no_answers_is_ended_once_others_need_its_room(
    tmp_path: Path,
) -> None:
    """Until then its requests wait in the kernel's buffers, and what is held of their answers is bounded."""
    settings = {"reads_in_progress_bytes_max": 8 * MIB, "response_backpressure_timeout_ms": 50}
    async with serving_rpc(tmp_path, **settings) as served:
        peer = await served.connect()
        assert (await peer.ask(add(0, bytes(MIB), 3))) is not None
        peer.writer.write(frame_of(messages.ReadEntry(LEDGER, 0), 3) * 5_000)
        await until(lambda: len(tasks_of_connections()) > REQUESTS_IN_FLIGHT_MAX)
        assert len(tasks_of_connections()) < REQUESTS_IN_FLIGHT_MAX + 10
        assert served.bookie.reads_in_progress.used_bytes <= 9 * MIB

        other = await served.connect()
        assert (await read(other, 0)).body is not None
        await until(lambda: len(tasks_of_connections()) < 10)


async def test_noise_leaves_no_trace(served: ServedRpc) -> None:
    """Frames of Apache's with bytes changed, to a bookie that has a ledger: it goes on, and complains of no defect."""
    random = Random(15)
    sent = [each.sent for each in exchanges("*/*.txt") + exchanges("java_*.txt")]
    frames = [frame for frame in sent if len(frame) > 4]
    honest = await served.connect()
    await honest.ask(add(0, b"kept", 3))
    for _ in range(300):
        peer = await served.connect()
        for frame in random.choices(frames, k=3):
            changed = bytearray(frame)
            for _ in range(random.randrange(3)):
                changed[random.randrange(4, len(changed))] = random.randrange(256)
            await peer.send(bytes(changed))
        await peer.close()
    assert (await read(honest, 0)).body == entry(0, b"kept")


async def test_a_connection_too_many_is_closed(tmp_path: Path) -> None:
    async with serving_rpc(tmp_path, connections_max=2) as served:
        peers = [await served.connect() for _ in range(2)]
        for peer in peers:
            assert await peer.ask(add(0, b"x", 3)) is not None
        surplus = await served.connect()
        assert await surplus.receive() is None


async def test_a_batch_ends_in_front_of_the_first_entry_that_is_missing(served: ServedRpc) -> None:
    peer = await served.connect()
    await peer.send(*(add(each, b"v" * each, 2) for each in (0, 1, 2, 4)))
    await answers_of(peer, 4, 2)
    frame = await peer.ask(frame_of(messages.BatchRead(LEDGER, 1, 99, 10, MIB), 2))
    assert frame is not None
    reply = v2.parse_answer(frame[4:]).reply
    assert isinstance(reply, messages.BatchReply)
    assert reply.number == 99
    assert reply.body == b"".join(
        struct.pack(">i", len(body)) + body for body in (entry(1, b"v"), entry(2, b"vv"))
    )
