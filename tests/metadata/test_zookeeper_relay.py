"""The relay tells requests by what they change, and lets held ones arrive when their sender is dead."""

from __future__ import annotations

import asyncio
import signal
import sys
from asyncio.subprocess import create_subprocess_exec
from collections.abc import AsyncIterator

import pytest

from bookkeeper_metadata.store.operations import Check, Create, Delete, Put
from bookkeeper_metadata.store.zookeeper import ZooKeeperStore
from spark_bookkeeper.local.environment import child_environment
from spark_bookkeeper.local.zookeeper import ZooKeeperProcess
from tests.metadata.zookeeper_relay import Interceptor, Part, Relay, Request, Sent

pytestmark = [pytest.mark.zookeeper, pytest.mark.slow]

SESSION_TIMEOUT_S = 2.0
SENDER = """
import sys
from kazoo.client import KazooClient

client = KazooClient(sys.argv[1], timeout=float(sys.argv[2]))
client.start()
client.create("/late", b"")
"""


class Holding(Interceptor):
    """Notes every change; holds a single create back until it is released."""

    service: str

    def __init__(self) -> None:
        self.changes: list[Sent] = []
        self.held = asyncio.Event()
        self.on_released = asyncio.Event()
        self.answered = asyncio.Event()

    async def request(self, sent: Sent) -> bool:
        if sent.parts:
            self.changes.append(sent)
        if sent.kind == Request.CREATE:
            self.held.set()
            await self.on_released.wait()
        return True

    def delivered(self, sent: Sent) -> None:
        if sent.kind == Request.CREATE:
            self.answered.set()


@pytest.fixture
async def holding(zookeeper: ZooKeeperProcess) -> AsyncIterator[Holding]:
    """In a relay, which is behind ``service``."""
    holding = Holding()
    relay = Relay(zookeeper.port, holding)
    holding.service = f"127.0.0.1:{await relay.start()}"
    yield holding
    await relay.stop()


async def test_every_part_of_a_multi_is_named_in_order(holding: Holding) -> None:
    store = await ZooKeeperStore.connect([holding.service])

    await store.multi([Create("/parts", b"1"), Put("/parts", b"22", 0)])
    await store.multi([Check("/parts", 1), Delete("/parts", 1)])
    await store.close()

    first, second = holding.changes
    assert {first.kind, second.kind} == {Request.MULTI}
    assert first.parts == (Part(Request.CREATE, "/parts"), Part(Request.SET_DATA, "/parts"))
    assert second.parts == (Part(Request.CHECK, "/parts"), Part(Request.DELETE, "/parts"))


@pytest.mark.timeout(60)
async def test_a_held_request_is_applied_long_after_its_sender_was_killed(
    zookeeper: ZooKeeperProcess, holding: Holding
) -> None:
    other = await ZooKeeperStore.connect([zookeeper.service])
    environment, timeout_s = child_environment(), str(SESSION_TIMEOUT_S)
    sender = await create_subprocess_exec(
        sys.executable, "-c", SENDER, holding.service, timeout_s, env=environment
    )
    await holding.held.wait()
    sender.send_signal(signal.SIGKILL)
    await sender.wait()

    # given twice as long as the session of a silent client would live
    await asyncio.sleep(2 * SESSION_TIMEOUT_S)
    assert await other.get("/late") is None
    holding.on_released.set()
    await holding.answered.wait()

    assert await other.get("/late") is not None
    await other.close()
