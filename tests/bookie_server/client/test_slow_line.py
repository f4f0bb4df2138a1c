"""A bookie behind a slow line, or with much to do, is reached by every carrier at the first attempt."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from bookie_server.client.connecting import connect_to
from bookie_server.client.settings import AUTO, RPC_V2, ConnectionSettings
from bookie_server.wire.messages import BookieInfo, Status
from bookkeeper_metadata.endpoints import BOOKIE_RPC, GRPC, SOCKET
from bookkeeper_metadata.foundation.tasks import end_tasks
from tests.doubles.certificates import Authority, serving_with, settings_of
from tests.doubles.records import encoded_section, write
from tests.doubles.serving import serving_all
from tests.doubles.storage import running_bookie

pytestmark = pytest.mark.integration

LATE_S = 0.4
"""Every byte is, each way. gRPC's own pause between two attempts grows to half a second, and was the time an attempt had."""
SETTINGS = ConnectionSettings(
    read_timeout_ms=120_000, add_timeout_ms=120_000, reconnect_timeout_ms=60_000
)
CARRIERS = {"grpc": (GRPC, AUTO), "sockets": (SOCKET, AUTO), "rpc": (BOOKIE_RPC, RPC_V2)}


@dataclass
class SlowLine:
    host: str
    port: int

    async def meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(self.host, self.port)
        passing = [
            asyncio.create_task(each) for each in (pass_on(reader, back), pass_on(there, writer))
        ]
        try:
            with suppress(asyncio.CancelledError):
                await asyncio.wait(passing)
        finally:
            await end_tasks(passing)
            back.close()
            writer.close()


async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    loop = asyncio.get_running_loop()
    with suppress(OSError):
        while data := await reader.read(64 * 1024):
            loop.call_later(LATE_S, writer.write, data)
        await asyncio.sleep(LATE_S)


@pytest.mark.parametrize("is_over_tls", [False, True], ids=["clear", "tls"])
@pytest.mark.parametrize("carrier", list(CARRIERS))
async def test_the_first_request_and_the_first_add_are_answered(
    carrier: str, is_over_tls: bool, tmp_path: Path
) -> None:
    protocol, bookie_protocol = CARRIERS[carrier]
    settings, tls = SETTINGS, None
    if is_over_tls:
        authority = Authority(tmp_path / "certificates")
        tls = serving_with(authority.files("bookie"))
        settings = replace(SETTINGS, **settings_of(authority.files("task")))
    async with (
        running_bookie(tmp_path) as bookie,
        serving_all(bookie, BookieInfo("b:1"), tmp_path, tls) as ports,
    ):
        endpoint = ports.endpoint(protocol)
        line = SlowLine(endpoint.host, endpoint.port)
        server = await asyncio.start_server(line.meet, "127.0.0.1", 0)
        reached = replace(endpoint, port=server.sockets[0].getsockname()[1])
        client = connect_to("b:1", reached, settings, bookie_protocol=bookie_protocol)
        try:
            assert await client.info() is not None
            assert await write(client, encoded_section([b"far away"], 0)) is Status.OK
        finally:
            await client.close()
            server.close()
