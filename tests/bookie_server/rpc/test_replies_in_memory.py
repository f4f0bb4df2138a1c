"""What a reply keeps in memory until its client takes it, over Apache's protocol: what is accounted for, and no more."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from bookie_server.carrier.connection import new_body
from bookie_server.serving.outbox import Outbox
from bookie_server.wire.buffer import Buffer, held_bytes
from bookie_server.wire.messages import Section
from bookie_server.wire.record import parse_run
from bookie_server.wire.rpc import messages, v2, v3
from bookkeeper_metadata.model import NO_ENTRY_ID, DigestType
from tests.bookie_server.rpc.asking import LEDGER, PASSWORD_KEY, frame_of
from tests.doubles import records
from tests.doubles.rpc_peers import ServedRpc
from tests.doubles.waits import until

KIB = 1024
COUNT = 500
Replies = list[Sequence[Buffer]]


@pytest.fixture
async def replies(served: ServedRpc, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Replies]:
    """Those that nobody takes before the end of the test."""
    sent: Replies = []
    is_over = asyncio.Event()

    async def send(_: Outbox, parts: Sequence[Buffer]) -> None:
        sent.append(parts)
        await is_over.wait()

    monkeypatch.setattr(Outbox, "send", send)
    yield sent
    is_over.set()


async def add_a_frame(served: ServedRpc) -> weakref.ref[Any]:
    """Half a MiB of entries that came in one frame; whether anything keeps that."""
    data = records.records([bytes(KIB)] * COUNT, ledger_id=LEDGER)
    body = new_body(len(data))
    body[:] = data
    added = Section(LEDGER, PASSWORD_KEY, False, DigestType.CRC32C, parse_run(body))
    await records.add(served.bookie, added)
    return weakref.ref(body.obj)


async def let_go(served: ServedRpc) -> None:
    """What is cached is on the disk, and the cache is empty."""
    await served.bookie._checkpoints.stop()
    served.bookie.storage.checkpoint_now()
    gc.collect()


SMALL = [
    frame_of(messages.ReadEntry(LEDGER, 3), v3.VERSION),
    frame_of(messages.ReadEntry(LEDGER, 3), v2.VERSION),
    frame_of(messages.ReadEntry(LEDGER, NO_ENTRY_ID), v3.VERSION),
    frame_of(messages.ReadLac(LEDGER), v3.VERSION),
    frame_of(messages.BatchRead(LEDGER, 3, 1, 9, 64 * KIB), v2.VERSION),
]


@pytest.mark.parametrize("asked", SMALL, ids=["v3", "v2", "last", "lac", "batch"])
async def test_a_small_reply_keeps_no_frame(
    served: ServedRpc, replies: Replies, asked: bytes
) -> None:
    """Behind the checkpoint that lets go of it, for as long as a client takes nothing."""
    frame = await add_a_frame(served)
    peer = await served.connect()

    await peer.send(asked, asked)
    await until(lambda: len(replies) == 2)
    await let_go(served)

    assert frame() is None
    assert served.used_bytes == sum(map(held_bytes, replies)) < 40 * KIB


async def test_a_reply_of_most_of_a_frame_is_sent_as_it_is_and_accounted_for(
    served: ServedRpc, replies: Replies
) -> None:
    frame = await add_a_frame(served)
    peer = await served.connect()

    await peer.send(frame_of(messages.BatchRead(LEDGER, 0, 1, 400, 2048 * KIB), v2.VERSION))
    await until(lambda: bool(replies))
    await let_go(served)

    assert frame() is not None
    (parts,) = replies
    assert served.used_bytes == held_bytes(parts) > COUNT * KIB
