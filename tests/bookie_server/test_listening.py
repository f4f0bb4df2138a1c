"""A bookie's port: had, or refused with a reason and what to do."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator

import grpc.aio
import pytest

from bookie_server.carrier.sockets import connect, listen
from bookie_server.listening import bind, listen_at
from bookie_server.serving.grpc_service import SERVER_OPTIONS
from bookie_server.settings import BookieSettings
from bookkeeper_metadata.endpoints import Endpoint
from bookkeeper_metadata.foundation.listening import PortUnavailableError

HOST = "127.0.0.1"


@pytest.fixture
async def server() -> AsyncIterator[grpc.aio.Server]:
    made = grpc.aio.server(options=SERVER_OPTIONS)
    yield made
    await made.stop(0)


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server((HOST, 0)) as listener:
        yield listener.getsockname()[1]


async def test_a_free_port_is_had(server: grpc.aio.Server) -> None:
    assert bind(server, BookieSettings(bookie_id="b", port=0)) > 0


async def test_a_port_that_is_taken_says_how_the_bookie_stays_itself_at_another(
    server: grpc.aio.Server, taken: int
) -> None:
    with pytest.raises(PortUnavailableError) as unnamed:
        bind(server, BookieSettings(port=taken))
    with pytest.raises(PortUnavailableError) as named:
        bind(server, BookieSettings(port=taken, bookie_id="b"))

    assert f"with --bookie-id {HOST}:{taken} if it has data" in unnamed.value.detail
    assert named.value.detail.endswith("or choose another port with --port")
    assert (named.value.address, named.value.setting) == (f"{HOST}:{taken}", "port")


async def test_a_host_that_is_not_here_is_not_taken_for_a_port_in_use(
    server: grpc.aio.Server,
) -> None:
    with pytest.raises(PortUnavailableError) as error:
        bind(server, BookieSettings(host="192.0.2.1", port=3181, insecure=True))

    assert error.value.setting == "host"


def test_plain_sockets_are_refused_by_the_settings_that_chose_their_address(taken: int) -> None:
    """The host has one setting for both carriers: the error named a flag that does not exist."""
    with pytest.raises(PortUnavailableError) as nowhere:
        listen_at(BookieSettings(host="192.0.2.1", socket_port=3182, insecure=True), "socket_port")
    with pytest.raises(PortUnavailableError) as in_use:
        listen_at(BookieSettings(host=HOST, socket_port=taken), "socket_port")

    assert (nowhere.value.setting, in_use.value.setting) == ("host", "socket_port")
    assert nowhere.value.detail.endswith("choose another with --host")


def test_all_addresses_are_those_of_both_kinds() -> None:
    """As gRPC has it: a bookie at ``::`` was reached over plain sockets by IPv6 alone."""
    try:
        listener = listen("::", 0)
    except OSError as error:
        pytest.skip(f"no IPv6 here: {error}")
    with listener:
        port = listener.getsockname()[1]
        for address in (HOST, "::1"):
            socket.create_connection((address, port), timeout=60).close()


@pytest.mark.parametrize(("host", "port"), [("a" * 70 + ".b", 3181), ("..", 1), (HOST, 2**16)])
async def test_what_no_host_can_be_called_is_not_reached(host: str, port: int) -> None:
    """Neither refuses it as a host that is not there: it ended who asked."""
    with pytest.raises(OSError):
        await connect(host, port)


async def test_grpc_reaches_a_bookie_at_an_ipv6_address(server: grpc.aio.Server) -> None:
    """``::1:3181`` named the host ``::1:3181`` to gRPC, so that such a bookie could be used over sockets alone."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError as error:
        pytest.skip(f"no IPv6 here: {error}")
    port = bind(server, BookieSettings(host="::1", port=0, bookie_id="b"))
    await server.start()

    endpoint = Endpoint("bookie", "::1", port, "grpc")
    async with grpc.aio.insecure_channel(endpoint.address) as channel:
        await asyncio.wait_for(channel.channel_ready(), 60)


async def test_a_port_that_has_just_become_free_was_taken(
    server: grpc.aio.Server, taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "create_server", lambda *_, **__: socket.socket())

    with pytest.raises(PortUnavailableError, match="another process has this port"):
        bind(server, BookieSettings(port=taken))
