"""A client's connection is found by the name gRPC gives it, and ended."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from bookie_server.memory import connections
from bookie_server.memory.connections import Connections, end_connections, peer_of

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(sys.platform != "linux", reason="other systems do not show descriptors"),
]


@pytest.fixture(params=[False, True], ids=["IPv4", "both kinds"])
def connected(request: pytest.FixtureRequest) -> Iterator[tuple[int, socket.socket]]:
    """Port of a server and a client's connection to it; gRPC listens for both kinds in one."""
    kind, host = (socket.AF_INET6, "::") if request.param else (socket.AF_INET, "127.0.0.1")
    with ExitStack() as stack:
        listening = stack.enter_context(
            socket.create_server((host, 0), family=kind, dualstack_ipv6=request.param)
        )
        port = listening.getsockname()[1]
        client = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        stack.enter_context(listening.accept()[0])
        yield port, client


def test_the_connection_of_one_client_is_ended(connected: tuple[int, socket.socket]) -> None:
    port, client = connected
    own_port = client.getsockname()[1]
    other = peer_of(f"ipv4:127.0.0.1:{port}")
    assert other is not None
    assert end_connections(port, {other}) == []

    peer = peer_of(f"ipv4:127.0.0.1:{own_port}")
    assert peer is not None
    assert end_connections(port, {other, peer}) == [peer]

    assert client.recv(1) == b""


def test_looking_for_a_connection_leaves_no_descriptor_behind() -> None:
    before = len(os.listdir("/proc/self/fd"))

    assert end_connections(1, {("127.0.0.1", 1)}) == []

    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize(
    ("text", "peer"),
    [
        ("ipv4:10.0.0.1:4711", ("10.0.0.1", 4711)),
        ("ipv6:[::1]:4711", ("::1", 4711)),
        ("ipv6:%5B::1%5D:4711", ("::1", 4711)),
        ("unix:/tmp/socket", None),
        ("", None),
    ],
)
def test_a_client_is_known_by_the_name_grpc_gives_it(
    text: str, peer: tuple[str, int] | None
) -> None:
    assert peer_of(text) == peer


async def test_connections_are_looked_through_once_for_all_and_off_the_loop(
    connected: tuple[int, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each room that was taken back from a client kept the loop for a look at 10,000 connections."""
    looks: list[threading.Thread] = []
    look = connections.end_connections

    def noted(port: int, peers: set[connections.Peer]) -> list[connections.Peer]:
        looks.append(threading.current_thread())
        return look(port, peers)

    monkeypatch.setattr(connections, "end_connections", noted)
    port, client = connected
    client.setblocking(False)
    ours = Connections(port)
    for own_port in (1, client.getsockname()[1], client.getsockname()[1]):
        ours.disconnect(f"ipv4:127.0.0.1:{own_port}")

    assert await asyncio.get_running_loop().sock_recv(client, 1) == b""
    assert len(looks) == 1
    assert looks[0] is not threading.current_thread()
