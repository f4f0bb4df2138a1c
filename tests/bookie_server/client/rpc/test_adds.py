"""Adds to a bookie that speaks Apache's protocol, and takes, refuses and forgets them as Apache's do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from bookie_server.client.rpc.adds import ENTRIES_IN_FLIGHT_MAX
from bookie_server.client.rpc.client import RpcBookieClient, rpc_over_tcp
from bookie_server.client.settings import ConnectionSettings
from bookie_server.wire.messages import Status
from bookie_server.wire.rpc import messages, v2
from bookie_server.wire.rpc.statuses import RpcStatus
from tests.doubles.records import encoded_section, write
from tests.patience import seconds

pytestmark = pytest.mark.integration

SETTINGS = ConnectionSettings(add_timeout_ms=60_000, reconnect_timeout_ms=60_000)
Answer = Callable[[messages.AddEntry, RpcStatus], None]
Conduct = Callable[[list[messages.AddEntry], Answer], Awaitable[None]]
"""Gets the adds that came, all of them since the last time, and answers."""


@asynccontextmanager
async def client_of(
    conduct: Conduct, settings: ConnectionSettings = SETTINGS
) -> AsyncIterator[RpcBookieClient]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came: list[messages.AddEntry] = []
        has_come = asyncio.Event()

        def answer(add: messages.AddEntry, status: RpcStatus) -> None:
            reply = messages.AddReply(add.ledger_id, add.entry_id)
            writer.write(b"".join(v2.encode_answer(v2.Answer(status, reply))))

        async def act() -> None:
            while True:
                await has_come.wait()
                has_come.clear()
                taken = came.copy()
                came.clear()
                await conduct(taken, answer)

        acting = asyncio.create_task(act())
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4))
                asked = v2.parse_request(await reader.readexactly(size))
                assert isinstance(asked.request, messages.AddEntry)
                came.append(asked.request)
                has_come.set()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            acting.cancel()
            writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        client = rpc_over_tcp("b:1", f"127.0.0.1:{port}", settings)
        try:
            yield client
        finally:
            await client.close()


async def test_a_section_of_more_entries_than_a_bookie_takes_is_sent_in_portions() -> None:
    """All at once it was refused in part, again and again, until its time was over."""
    most = 0

    async def slow(adds: list[messages.AddEntry], answer: Answer) -> None:
        nonlocal most
        await asyncio.sleep(0.01)
        most = max(most, len(adds))
        for add in adds:
            answer(add, RpcStatus.EOK)

    async with client_of(slow) as client:
        assert await write(client, encoded_section([b"x"] * 16_000)) is Status.OK
        assert most <= ENTRIES_IN_FLIGHT_MAX


async def test_a_bookie_with_too_much_to_do_is_asked_again() -> None:
    refused = set[int]()

    async def busy(adds: list[messages.AddEntry], answer: Answer) -> None:
        for add in adds:
            is_new = add.entry_id % 3 == 0 and add.entry_id not in refused
            refused.add(add.entry_id)
            answer(add, RpcStatus.ETOOMANYREQUESTS if is_new else RpcStatus.EOK)

    async with client_of(busy) as client:
        assert await write(client, encoded_section([b"x"] * 100)) is Status.OK
        assert len(refused) == 100


async def test_one_refusal_refuses_the_section() -> None:
    async def fenced_at_the_end(adds: list[messages.AddEntry], answer: Answer) -> None:
        for add in adds:
            answer(add, RpcStatus.EFENCED if add.entry_id == 99 else RpcStatus.EOK)

    async with client_of(fenced_at_the_end) as client:
        assert await write(client, encoded_section([b"x"] * 100)) is Status.FENCED


async def test_a_refusal_that_overtakes_a_grant_is_nobodys_grant() -> None:
    """Two under one id: the bookie refuses the second at once, and grants the first when it is synced."""

    async def apaches(adds: list[messages.AddEntry], answer: Answer) -> None:
        for add in adds:
            if bytes(add.body).endswith(b"second"):
                answer(add, RpcStatus.EUA)
        await asyncio.sleep(0.02)
        for add in adds:
            if bytes(add.body).endswith(b"first"):
                answer(add, RpcStatus.EOK)

    async with client_of(apaches) as client:
        first, second = await asyncio.gather(
            write(client, encoded_section([b"the first"])),
            write(client, encoded_section([b"a second"])),
        )
        assert second is not Status.OK
        assert first in (Status.OK, Status.UNAUTHORIZED)


async def test_answers_that_were_dropped_jam_nothing() -> None:
    """Whatever was unanswered is sent again by another connection, and what comes behind it goes through."""
    is_deaf = True

    async def forgetful(adds: list[messages.AddEntry], answer: Answer) -> None:
        for add in adds:
            if not is_deaf:
                answer(add, RpcStatus.EOK)

    settings = ConnectionSettings(add_timeout_ms=300, reconnect_timeout_ms=60_000)
    async with client_of(forgetful, settings) as client:
        lost = await write(client, encoded_section([b"x"] * (ENTRIES_IN_FLIGHT_MAX + 10)))
        assert lost is Status.UNREACHABLE
        is_deaf = False
        for _ in range(100):
            if await write(client, encoded_section([b"y"], ledger_id=8)) is Status.OK:
                break
        else:
            raise AssertionError("nothing goes through any more")


async def test_answers_that_were_dropped_while_others_come_are_not_waited_for() -> None:
    """They counted as on their way for ever, and what they were for was kept."""
    sent_again = asyncio.Event()
    connections = set[int]()

    async def forgetful(adds: list[messages.AddEntry], answer: Answer) -> None:
        connections.add(id(answer))
        for add in adds:
            if add.ledger_id == 8:
                answer(add, RpcStatus.EOK)
        if len(connections) > 1:
            sent_again.set()

    settings = ConnectionSettings(add_timeout_ms=300, reconnect_timeout_ms=60_000)
    async with client_of(forgetful, settings) as client:
        lost = asyncio.create_task(write(client, encoded_section([b"x"])))
        entry_id = 0
        while not sent_again.is_set():
            # Of a size that is sent although another frame is unanswered.
            section = encoded_section(
                [bytes(settings.frame_size_bytes_target)], entry_id, ledger_id=8
            )
            status = await write(client, section)
            assert status in (Status.OK, Status.UNREACHABLE)
            entry_id += 1
        assert await lost is Status.UNREACHABLE


async def test_a_bookie_that_is_silent_is_given_up_though_it_is_sent_more() -> None:
    connections = set[int]()
    is_silent = True

    async def silent(adds: list[messages.AddEntry], answer: Answer) -> None:
        connections.add(id(answer))
        for add in adds:
            if not is_silent:
                answer(add, RpcStatus.EOK)

    settings = ConnectionSettings(add_timeout_ms=300, reconnect_timeout_ms=60_000)
    async with client_of(silent, settings) as client:
        large = bytes(settings.frame_size_bytes_target)
        sent: list[asyncio.Task[Status]] = []
        while len(connections) < 2:
            sent.append(asyncio.create_task(write(client, encoded_section([large], len(sent)))))
            await asyncio.sleep(0.05)
        is_silent = False
        # On a busy machine an add may take longer than its limit, as short as that is here.
        async with asyncio.timeout(seconds(20)):
            while await write(client, encoded_section([b"x"], len(sent))) is not Status.OK:
                pass
        await asyncio.gather(*sent)
