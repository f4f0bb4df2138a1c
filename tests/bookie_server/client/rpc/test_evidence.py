"""What a bookie of Apache's denies is believed behind a force by the same process, and never else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from bookie_server.client.rpc.client import RpcBookieClient, rpc_over_tcp
from bookie_server.client.settings import ConnectionSettings
from bookie_server.serving.rpc.answering import refusal_of
from bookie_server.wire.messages import ReadLacRequest, ReadRequest, Status
from bookie_server.wire.rpc import messages, v3
from bookie_server.wire.rpc.statuses import RpcStatus
from tests.doubles.records import KEY

pytestmark = pytest.mark.integration

Conduct = Callable[[messages.Request], tuple[RpcStatus, bool]]
"""The status of an answer, and whether the bookie's process dies behind it."""
SETTINGS = ConnectionSettings(read_timeout_ms=20_000)


@asynccontextmanager
async def client_of(conduct: Conduct) -> AsyncIterator[tuple[RpcBookieClient, list[str]]]:
    """A client of a bookie that has nothing, and what it was asked."""
    asked: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4))
                numbered = v3.parse_request(await reader.readexactly(size))
                assert numbered.request is not None
                asked.append(type(numbered.request).__name__)
                status, dies = conduct(numbered.request)
                answer = v3.Answer(numbered.head, status, refusal_of(numbered.request))
                writer.write(b"".join(v3.encode_answer(answer)))
                await writer.drain()
                if dies:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        client = rpc_over_tcp("b:1", f"127.0.0.1:{port}", SETTINGS)
        try:
            yield client, asked
        finally:
            await client.close()


async def denials(client: RpcBookieClient) -> list[Status]:
    """What a fencing read and a fencing read of the LAC are told."""
    reply = await client.read(
        ReadRequest(ledger_id=7, first_entry=5, last_entry=6, is_fencing=True, master_key=KEY)
    )
    lac = await client.read_lac(ReadLacRequest(7, is_fencing=True, master_key=KEY))
    return [*(span.status for span in reply.missing), lac.status]


def has_nothing(request: messages.Request) -> RpcStatus:
    return RpcStatus.EOK if isinstance(request, messages.ForceLedger) else RpcStatus.ENOENTRY


async def test_behind_a_force_it_is_believed() -> None:
    async with client_of(lambda request: (has_nothing(request), False)) as (client, asked):
        assert await denials(client) == [Status.NO_ENTRY, Status.NO_ENTRY]
        assert asked.count("ForceLedger") == 2


async def test_without_one_it_is_not() -> None:
    def fails(request: messages.Request) -> tuple[RpcStatus, bool]:
        is_force = isinstance(request, messages.ForceLedger)
        return (RpcStatus.EIO if is_force else RpcStatus.ENOENTRY), False

    async with client_of(fails) as (client, _):
        assert await denials(client) == [Status.UNKNOWN, Status.UNKNOWN]


async def test_what_another_process_forces_proves_nothing_of_the_first() -> None:
    """It denied, and died with the fence in its memory; the next one has synced all that it knows of."""

    def dies(request: messages.Request) -> tuple[RpcStatus, bool]:
        return has_nothing(request), isinstance(request, messages.ReadEntry)

    async with client_of(dies) as (client, asked):
        assert not any(status.is_evidence_of_absence for status in await denials(client))
        assert asked


async def test_a_read_that_does_not_fence_needs_no_force() -> None:
    """Of a closed ledger it is only a copy that is missing."""
    async with client_of(lambda request: (RpcStatus.ENOENTRY, False)) as (client, asked):
        lac = await client.read_lac(ReadLacRequest(7))
        assert lac.status is Status.NO_ENTRY
        assert asked == ["ReadLac", "ReadEntry"], "READ_LAC's word is asked again"


@pytest.mark.parametrize("is_fencing", [True, False])
async def test_a_bookie_that_is_silent_costs_a_read_its_time_two_or_three_times(
    is_fencing: bool,
) -> None:
    """A thousand entries cost nine times as much, one window of them after the other."""
    heard: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while said := await reader.read(1 << 16):
            heard.append(said)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        settings = ConnectionSettings(read_timeout_ms=200)
        client = rpc_over_tcp("b:1", f"127.0.0.1:{port}", settings)
        asked = ReadRequest(
            ledger_id=7, first_entry=0, last_entry=999, is_fencing=is_fencing, master_key=KEY
        )
        reply = await client.read(asked)
        await client.close()
    assert [(span.first_entry, span.last_entry) for span in reply.missing] == [(0, 64), (65, 999)]
    assert {span.status for span in reply.missing} == {Status.UNREACHABLE}
    # Of some it was asked, and of none of the others.
    assert len(b"".join(heard)) < 100 * 66


async def test_a_connection_that_had_ended_costs_a_read_one_entry() -> None:
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        is_first = connections == 1
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while size := int.from_bytes(await reader.readexactly(4)):
                numbered = v3.parse_request(await reader.readexactly(size))
                if is_first:
                    break
                answer = v3.Answer(numbered.head, RpcStatus.EIO, refusal_of(numbered.request))
                writer.write(b"".join(v3.encode_answer(answer)))
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        client = rpc_over_tcp("b:1", f"127.0.0.1:{port}", SETTINGS)
        reply = await client.read(
            ReadRequest(ledger_id=7, first_entry=0, last_entry=19, is_fencing=True, master_key=KEY)
        )
        await client.close()
    told = [(span.first_entry, span.last_entry, span.status) for span in reply.missing]
    assert told[0] == (0, 0, Status.UNREACHABLE)
    assert {status for _, _, status in told[1:]} == {Status.UNKNOWN}
    assert told[-1][1] == 19
