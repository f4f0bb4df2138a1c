"""What becomes of requests, watches and registrations when the connection to a real ZooKeeper is lost."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import Any
from unittest.mock import Mock

import pytest
from kazoo.protocol.states import KazooState

from bookkeeper_metadata.errors import MetadataUnavailableError
from bookkeeper_metadata.foundation.tasks import end_tasks
from bookkeeper_metadata.store.operations import Node
from bookkeeper_metadata.store.zookeeper import ZooKeeperStore
from spark_bookkeeper.local.zookeeper import ZooKeeperProcess
from tests.conformance.metadata_store import is_owner
from tests.doubles.waits import LIMIT_S, until, until_read
from tests.metadata.zookeeper_stores import SESSION_TIMEOUT_MS, answered, open_store
from tests.patience import seconds

pytestmark = [pytest.mark.zookeeper, pytest.mark.slow]


async def test_a_killed_server_leaves_mutations_unknown_and_everything_resumes_with_it(
    own_zookeeper: ZooKeeperProcess,
) -> None:
    store = await open_store(own_zookeeper)
    await store.create("/a", b"0")
    await store.ephemeral("/e", b"me")
    seen: list[Node | None] = []
    await store.watch("/a", seen.append)

    await asyncio.to_thread(own_zookeeper.kill)

    with pytest.raises(MetadataUnavailableError):
        await store.put("/a", b"lost", 0)

    reading = asyncio.create_task(answered(store, "/a"))
    await asyncio.to_thread(own_zookeeper.start)
    assert await reading == (b"0", 0)
    assert await store.put("/a", b"1", 0) == 1
    await until(lambda: seen[-1] is not None and seen[-1].value == b"1")
    await until_read(lambda: is_owner(store, "/e"), bool)
    await store.close()


@pytest.mark.parametrize(
    ("comes", "outcome"),
    [
        ("while kazoo ends what it had", "ConnectionLoss"),
        ("before the loop hears", "no connection within"),
    ],
)
async def test_what_is_asked_as_the_connection_is_lost_is_not_done_later(
    own_zookeeper: ZooKeeperProcess, comes: str, outcome: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    timeout_ms = round(seconds(6) * 1_000)
    store = await ZooKeeperStore.connect([own_zookeeper.service], session_timeout_ms=timeout_ms)
    await store.create("/a", b"0")
    has_ended, may_go_on = threading.Event(), threading.Event()
    end_all = store._client._notify_pending
    first = iter([True])

    def hold(state: str) -> None:
        end_all(state)
        if next(first, False):
            has_ended.set()
            assert may_go_on.wait(seconds(LIMIT_S))

    if comes == "before the loop hears":
        note_losses(store, has_ended)
    else:
        monkeypatch.setattr(store._client, "_notify_pending", hold)
    # The loop stands still until the request is sent, so it has not heard of the loss.
    own_zookeeper.kill()
    assert has_ended.wait(seconds(LIMIT_S))
    asyncio.get_running_loop().call_soon(may_go_on.set)
    with pytest.raises(MetadataUnavailableError, match=outcome):
        await store.put("/a", b"lost", 0)

    await asyncio.to_thread(own_zookeeper.start)
    # Requests are answered in their order: anything still with kazoo would have been done before.
    assert await answered(store, "/a") == (b"0", 0)
    await store.close()


async def test_what_is_asked_as_the_connection_is_lost_waits_for_the_next(
    own_zookeeper: ZooKeeperProcess,
) -> None:
    store = await open_store(own_zookeeper)
    await store.create("/a", b"0")
    is_lost = threading.Event()
    note_losses(store, is_lost)
    store._client._connection._socket.shutdown(socket.SHUT_RDWR)
    assert is_lost.wait(seconds(LIMIT_S))  # and the loop has not heard of it
    assert await store.put("/a", b"1", 0) == 1
    await store.close()


async def test_more_requests_than_are_taken_keep_nothing_else_waiting(
    own_zookeeper: ZooKeeperProcess,
) -> None:
    store = await open_store(own_zookeeper)
    await store.create("/a", b"0")
    own_zookeeper.pause()
    # A loop that waits for kazoo, which waits for the server, would wait for ever.
    rescue = threading.Timer(seconds(30), own_zookeeper.resume)
    rescue.start()
    async with asyncio.timeout(seconds(20)):
        asked = [store.create(f"/n{number}", bytes(100_000)) for number in range(500)]
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
    rescue.cancel()
    own_zookeeper.resume()
    assert {type(outcome) for outcome in outcomes} == {MetadataUnavailableError}
    assert await answered(store, "/a") == (b"0", 0)
    await store.close()


async def test_none_is_handed_over_between_a_loss_and_the_end_of_what_was(
    own_zookeeper: ZooKeeperProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_store(own_zookeeper)
    await store.create("/a", b"0")
    session = store._session
    own_zookeeper.pause()
    # Its own thread tells a loss, and so does nothing else meanwhile: here it must not hear of the request.
    bell = store._client._connection._write_sock
    monkeypatch.setattr(store._client._connection, "_write_sock", Mock())
    losing = threading.Thread(target=session._on_state, args=(KazooState.SUSPENDED,))

    def submit() -> Any:
        losing.start()
        losing.join(0.5)
        assert losing.is_alive()  # it waits for this request to be where it finds it
        return store._client.set_async("/a", b"lost")

    with pytest.raises(MetadataUnavailableError, match="ConnectionLoss"):
        await session.mutate("/a", submit)
    losing.join()
    monkeypatch.setattr(store._client._connection, "_write_sock", bell)
    own_zookeeper.kill()  # which answers nothing any more that kazoo does not know of
    await store.close()


async def test_connections_that_are_lost_at_once_do_not_make_a_request_wait_longer(
    own_zookeeper: ZooKeeperProcess,
) -> None:
    store = await open_store(own_zookeeper)
    session = store._session
    session._is_taking = False

    async def connect_again_and_again() -> None:
        while True:
            session._connected.set()
            await asyncio.sleep(0.01)

    flapping = asyncio.create_task(connect_again_and_again())
    async with asyncio.timeout(seconds(20)):
        with pytest.raises(MetadataUnavailableError, match="no connection within 2000 ms"):
            await store.create("/a", b"")
    await end_tasks([flapping])
    await store.close()


@pytest.mark.conformance("S10")
async def test_a_registration_survives_an_outage_longer_than_its_session(
    own_zookeeper: ZooKeeperProcess,
) -> None:
    store = await open_store(own_zookeeper)
    await store.ephemeral("/e", b"me")
    own_zookeeper.pause()
    with pytest.raises(MetadataUnavailableError):
        await store.create("/lost", b"")
    # The client gives its session up for lost only when a server says so.
    await asyncio.sleep(SESSION_TIMEOUT_MS / 1000)
    own_zookeeper.resume()
    await until_read(lambda: is_owner(store, "/e"), bool)
    await store.close()


async def test_closing_does_not_wait_for_a_dead_server(own_zookeeper: ZooKeeperProcess) -> None:
    store = await open_store(own_zookeeper)
    await store.watch("/", lambda node: None)
    await store.ephemeral("/e", b"")
    own_zookeeper.kill()
    async with asyncio.timeout(seconds(5)):
        await store.close()


async def test_closing_does_not_wait_for_a_name_that_is_looked_up(
    own_zookeeper: ZooKeeperProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kazoo's thread may be within it for as long as the resolver likes."""
    service = f"localhost:{own_zookeeper.port}"
    store = await ZooKeeperStore.connect([service], session_timeout_ms=SESSION_TIMEOUT_MS)
    is_looking, is_found = threading.Event(), threading.Event()
    look_up = socket.getaddrinfo

    def look_up_slowly(host: str, *arguments: Any) -> Any:
        if threading.current_thread() is threading.main_thread():
            return look_up(host, *arguments)
        is_looking.set()
        is_found.wait(seconds(60))
        return look_up(host, *arguments)

    monkeypatch.setattr(socket, "getaddrinfo", look_up_slowly)
    own_zookeeper.kill()
    assert await asyncio.to_thread(is_looking.wait, seconds(LIMIT_S))
    try:
        async with asyncio.timeout(seconds(20)):
            await store.close()
        assert not is_found.is_set()
    finally:
        is_found.set()


def note_losses(store: ZooKeeperStore, is_lost: threading.Event) -> None:
    """Set it once kazoo's thread has told all its listeners of a lost connection."""
    tell_all = store._client._make_state_change

    def tell(state: str) -> None:
        tell_all(state)
        if state == KazooState.SUSPENDED:
            is_lost.set()

    store._client._make_state_change = tell
