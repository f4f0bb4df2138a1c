"""Connections: what is learned of addresses, how often it is asked for, and that nothing stays open."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from bookie_server.client.settings import ConnectionSettings
from bookkeeper_metadata.bookies import BookieRegistry
from bookkeeper_metadata.endpoints import BOOKIE_ENDPOINT, GRPC, TLS, BookieServiceInfo, Endpoint
from bookkeeper_metadata.errors import MetadataUnavailableError
from spark_bookkeeper.ledger.connections import Connections
from spark_bookkeeper.ledger.errors import TlsNotOfferedError
from spark_bookkeeper.settings import ClientSettings
from tests.doubles.virtual_time import on_virtual_time
from tests.doubles.waits import pass_turns


def at(port: int) -> dict[str, BookieServiceInfo]:
    return {"b": BookieServiceInfo((Endpoint(BOOKIE_ENDPOINT, "h", port, GRPC),))}


class Registry:
    """Says what it is to say, and counts how often it was asked."""

    def __init__(self) -> None:
        self.writable_now: dict[str, BookieServiceInfo] = {}
        self.readonly_now: dict[str, BookieServiceInfo] = {}
        self.asked = 0
        self.is_away = False

    async def writable(self) -> dict[str, BookieServiceInfo]:
        self.asked += 1
        await asyncio.sleep(0)
        if self.is_away:
            raise MetadataUnavailableError("memory", "away")
        return self.writable_now

    async def readonly(self) -> dict[str, BookieServiceInfo]:
        return self.readonly_now


class Client:
    def __init__(self, address: str) -> None:
        self.address = address
        self.is_closed = False

    async def close(self) -> None:
        self.is_closed = True


def connected() -> tuple[Connections, Registry, list[Client]]:
    registry, clients = Registry(), list[Client]()

    def make_client(bookie_id: str, endpoint: Endpoint, _: ConnectionSettings) -> Any:
        clients.append(Client(endpoint.address))
        return clients[-1]

    known = cast(BookieRegistry, registry)
    return Connections(known, ClientSettings(), make_client), registry, clients


async def test_a_connection_to_a_former_address_stays_open_while_requests_may_wait_there() -> None:
    connections, _, clients = connected()
    connections.remember(at(1))
    connections.client("b")
    connections.remember(at(2))
    connections.client("b")

    assert [(each.address, each.is_closed) for each in clients] == [("h:1", False), ("h:2", False)]
    await connections.close()
    assert all(each.is_closed for each in clients)


def test_connections_to_former_addresses_are_ended_once_nobody_waits_there() -> None:
    async def move_often() -> None:
        connections, _, clients = connected()
        for port in range(1, 100):
            connections.remember(at(port))
            connections.client("b")
            await asyncio.sleep(10)

        still_open = [each.address for each in clients if not each.is_closed]
        assert still_open == [f"h:{port}" for port in range(94, 100)]
        await connections.close()
        assert all(each.is_closed for each in clients)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    on_virtual_time(move_often())


async def test_who_could_not_talk_to_any_looks_again_and_one_that_can_be_is_enough() -> None:
    """A bookie that was started again with other settings stayed unusable, with every ledger that it has a part in."""
    registry = Registry()
    settings = ClientSettings(connection=ConnectionSettings(tls_trust_path="/trust.pem"))
    connections = Connections(cast(BookieRegistry, registry), settings, lambda *_: Client("a"))  # type: ignore[arg-type]
    registry.writable_now = at(1)
    with pytest.raises(TlsNotOfferedError):
        await connections.prepare(("b",))
    secured = Endpoint(BOOKIE_ENDPOINT, "h", 1, GRPC, extensions=(TLS,))
    registry.writable_now = {**at(1), "c": BookieServiceInfo((secured,))}
    await connections.refresh()
    await connections.prepare(("b", "c"))
    registry.writable_now = {"b": BookieServiceInfo((secured,))}
    connections._agreed_again_s -= 1
    await connections.prepare(("b",))
    await connections.close()


async def test_a_bookie_that_is_registered_twice_is_where_it_is_writable() -> None:
    """It died read-only, and its old session has not expired."""
    connections, registry, clients = connected()
    registry.readonly_now, registry.writable_now = at(1), at(2)

    await connections.refresh()
    connections.client("b")

    assert [each.address for each in clients] == ["h:2"]


async def test_a_bookie_that_is_read_only_is_found() -> None:
    connections, registry, clients = connected()
    registry.readonly_now = at(1)

    await connections.refresh()
    connections.client("b")

    assert [each.address for each in clients] == ["h:1"]


async def test_silence_is_looked_into_once_in_a_while_and_nobody_waits_for_it() -> None:
    connections, registry, _ = connected()

    for _ in range(10):
        connections.note_silence()
        await pass_turns(5)

    assert registry.asked == 1
    await connections.close()


async def test_who_gives_up_ends_no_look_that_others_share() -> None:
    connections, registry, _ = connected()
    first = asyncio.create_task(connections.refresh())
    second = asyncio.create_task(connections.refresh())
    await asyncio.sleep(0)

    first.cancel()

    await second
    assert registry.asked == 1


async def test_an_unknown_bookie_is_not_looked_up_with_every_request() -> None:
    connections, registry, _ = connected()

    for _ in range(3):
        await connections.prepare(("b",))

    assert registry.asked == 1


async def test_a_look_that_failed_is_made_again_at_once() -> None:
    connections, registry, _ = connected()
    registry.is_away = True
    with pytest.raises(MetadataUnavailableError):
        await connections.prepare(("b",))
    registry.is_away = False

    await connections.prepare(("b",))

    assert registry.asked == 2


async def test_who_asks_whether_bookies_moved_is_not_told_of_an_absent_metadata_service() -> None:
    """It failed for want of bookies, and that is its error."""
    connections, registry, _ = connected()
    registry.is_away = True

    assert not await connections.look_for_moves(connections.moves)
