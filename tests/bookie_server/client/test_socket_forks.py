"""A process forked from one with open connections to a bookie: each has its own, and neither ends the other's."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from tests.doubles.served_sockets import serving_sockets
from tests.patience import seconds

pytestmark = [pytest.mark.integration, pytest.mark.slow]

SCRIPT = """
import asyncio, gc, os, sys
from bookie_server.client.settings import ConnectionSettings
from bookie_server.client.socket_client import over_tcp
from bookie_server.wire.messages import ReadRequest, Status
from tests.doubles.records import encoded_section, write

ADDRESS, HOW = sys.argv[1:]
SETTINGS = ConnectionSettings(
    add_timeout_ms=60_000, read_timeout_ms=60_000, reconnect_timeout_ms=10_000
)

async def open_client():
    return over_tcp("b:1", ADDRESS, SETTINGS)

async def use(client, entry_id):
    written = await write(client, encoded_section([b"x"], entry_id))
    read = await client.read(ReadRequest(ledger_id=7, first_entry=entry_id, last_entry=entry_id))
    return written is Status.OK and not read.missing

def connections(client):
    return client._requests._connection, client._writes._stream._connection

with asyncio.Runner() as runner:
    client = runner.run(open_client())
    assert runner.run(use(client, 0))
    before = connections(client)
    child = os.fork()
    if not child:
        status = 1
        try:
            if HOW == "closes":
                for connection in before:
                    connection.close()
            elif HOW == "sends":
                from bookie_server.wire.envelope import Kind
                for connection in before:
                    connection.send(Kind.HELLO, (b"garbage",))
            elif HOW == "drops":
                del client, before, runner
                gc.collect()

            async def use_own():
                own = await open_client()
                is_used = await use(own, 1)
                await own.close()
                return is_used

            with asyncio.Runner() as own_runner:
                status = 0 if own_runner.run(use_own()) else 2
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0, status
    assert runner.run(use(client, 2))
    assert connections(client) == before, "connected anew"
    runner.run(client.close())
print("both were served")
"""
"""What the parent does, and its child before it ends."""


@pytest.mark.parametrize("how", ["ends", "closes", "sends", "drops"])
async def test_parent_and_child_are_served_over_connections_of_their_own(
    tmp_path: Path, how: str
) -> None:
    async with serving_sockets(tmp_path) as served:
        forking = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            SCRIPT,
            served.address,
            how,
            env={"PYTHONPATH": ":".join(sys.path)},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            async with asyncio.timeout(seconds(60)):
                said, _ = await forking.communicate()
        finally:
            if forking.returncode is None:
                forking.kill()
                await forking.wait()

        assert said.decode() == "both were served\n"
        await served.until_nothing_is_left()
        assert served.bookie.storage.contents.last_entry(7) == 2
        assert served.malformed_count == 0
