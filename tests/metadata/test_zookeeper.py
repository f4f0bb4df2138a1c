"""The store in a real ZooKeeper, and what it says when that is slow, gone or back again."""

from __future__ import annotations

import asyncio
import errno
import itertools
import shutil
import socket
import threading
from contextlib import suppress
from typing import Any

import pytest
from kazoo.client import KazooClient

from bookkeeper_metadata.errors import MetadataUnavailableError
from bookkeeper_metadata.store.connect import connect
from bookkeeper_metadata.store.interface import MetadataStore
from bookkeeper_metadata.store.zookeeper import ZooKeeperStore
from bookkeeper_metadata.store.zookeeper_age import newest_zxid
from bookkeeper_metadata.store.zookeeper_handler import PollingHandler
from spark_bookkeeper.local.ports import free_port
from spark_bookkeeper.local.zookeeper import ZooKeeperProcess
from tests.conformance.metadata_store import MetadataStoreConformance, Service
from tests.doubles.waits import LIMIT_S, until
from tests.metadata.zookeeper_relay import Interceptor, Relay, Sent
from tests.metadata.zookeeper_stores import SESSION_TIMEOUT_MS, answered, open_store
from tests.patience import seconds

pytestmark = [pytest.mark.zookeeper, pytest.mark.slow]

_folders = itertools.count()


class ZooKeeperService(Service):
    def __init__(self, process: ZooKeeperProcess) -> None:
        self._process = process
        self.root = f"/conformance/{next(_folders)}"

    async def connect(self) -> MetadataStore:
        return await open_store(self._process)

    async def expire(self, store: MetadataStore) -> None:
        """A second connection takes over the session and ends it."""
        assert isinstance(store, ZooKeeperStore)
        old, client_id = store.session_id, store._client.client_id
        async with asyncio.timeout(seconds(LIMIT_S)):
            while store.session_id == old:
                await asyncio.to_thread(self._end_session, client_id)
                # The store reconnects at once, and may have taken its session back before it was ended.
                with suppress(TimeoutError):
                    await until(lambda: store.session_id != old, limit_s=2.0)

    def _end_session(self, client_id: tuple[int, bytes]) -> None:
        client = KazooClient(self._process.service, client_id=client_id, timeout=2.0)
        client.start()
        client.stop()
        client.close()


@pytest.fixture
def service(zookeeper: ZooKeeperProcess) -> Service:
    return ZooKeeperService(zookeeper)


class TestZooKeeperStore(MetadataStoreConformance):
    pass


async def test_a_server_that_accepts_a_connection_and_says_nothing_costs_an_attempt_only(
    zookeeper: ZooKeeperProcess,
) -> None:
    """As one may that is just starting: it cost the whole session timeout, and so the request."""
    accepted: list[asyncio.StreamWriter] = []

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
        writer.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.append(writer)
        if len(accepted) > 1:
            answers, requests = await asyncio.open_connection("127.0.0.1", zookeeper.port)
            await asyncio.gather(pump(reader, requests), pump(answers, writer))

    listening = await asyncio.start_server(accept, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    timeout_ms = round(seconds(6) * 1000)

    store = await ZooKeeperStore.connect(
        [f"127.0.0.1:{port}"], session_timeout_ms=timeout_ms, connect_timeout_ms=timeout_ms
    )

    await store.close()
    assert len(accepted) > 1
    accepted[0].close()
    listening.close()
    for writer in accepted:  # their pumps close them, a moment after the store has left
        with suppress(OSError):
            await writer.wait_closed()
    await listening.wait_closed()


class CutOnce(Interceptor):
    """Cuts one connection when told to."""

    is_due = False

    async def request(self, sent: Sent) -> bool:
        goes_on, self.is_due = not self.is_due, False
        return goes_on


async def test_a_shortage_of_descriptors_costs_the_connection_but_not_the_session_for_good(
    zookeeper: ZooKeeperProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a name had to be looked up, kazoo's thread died of it, and nothing ever said so."""
    cut = CutOnce()
    relay = Relay(zookeeper.port, cut)
    port = await relay.start()
    store = await ZooKeeperStore.connect(
        [f"localhost:{port}"], session_timeout_ms=SESSION_TIMEOUT_MS
    )
    looked_up: list[str] = []
    look_up = socket.getaddrinfo

    def short_of_descriptors(host: str, *arguments: Any) -> Any:
        if host == "localhost":
            looked_up.append(host)
        if len(looked_up) in (1, 2):  # the thread that is started again dies, too
            raise OSError(errno.EMFILE, "too many open files")
        return look_up(host, *arguments)

    monkeypatch.setattr(socket, "getaddrinfo", short_of_descriptors)
    monkeypatch.setattr(threading, "excepthook", lambda _: None)  # pytest reports the dead thread
    cut.is_due = True

    async with asyncio.timeout(seconds(20)):
        while True:
            # On a busy machine a request may give up before the thread is there again.
            with suppress(MetadataUnavailableError):
                assert await store.get("/zookeeper") is not None
                break
    assert len(looked_up) > 2
    await store.close()
    await relay.stop()


async def test_a_shortage_of_descriptors_leaves_no_threads(
    zookeeper: ZooKeeperProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(PollingHandler, "create_socket_pair", refuse)
    before = set(threading.enumerate())
    with pytest.raises(MetadataUnavailableError, match="Too many open files"):
        await open_store(zookeeper)
    assert set(threading.enumerate()) <= before


async def test_a_service_that_is_not_there_is_named_with_its_address() -> None:
    address = f"127.0.0.1:{free_port(set())}"
    with pytest.raises(MetadataUnavailableError) as error:
        async with asyncio.timeout(seconds(5)):
            await connect(f"zk+hierarchical://{address}/ledgers", connect_timeout_ms=500)
    assert address in str(error.value)
    assert "500 ms" in str(error.value)


async def test_a_server_with_older_data_is_told_from_one_that_is_away(
    own_zookeeper: ZooKeeperProcess, caplog: pytest.LogCaptureFixture
) -> None:
    """As after a restore from a backup: it closes every connection of who has seen more, without a word."""
    store = await open_store(own_zookeeper)
    for name in "abcdefgh":
        await store.create(f"/{name}", b"")
    await asyncio.to_thread(own_zookeeper.kill)
    with pytest.raises(MetadataUnavailableError):
        await store.create("/i", b"")
    with pytest.raises(MetadataUnavailableError) as away:
        await store.create("/i", b"")

    shutil.rmtree(own_zookeeper.directory / "version-2")
    await asyncio.to_thread(own_zookeeper.start)
    await until(lambda: "takes no connection" in caplog.text)
    with pytest.raises(MetadataUnavailableError) as older:
        await store.create("/i", b"")

    assert "no connection within 2000 ms. service" in str(away.value)
    assert "no connection within 2000 ms; its data are older" in str(older.value)
    assert "start this process again" in str(older.value)
    # Others go on, and once they have changed as much, it does, too.
    other = await open_store(own_zookeeper)
    for name in "abcdefghijklmnop":
        await other.create(f"/{name}", b"anew")
    assert await answered(store, "/a") == (b"anew", 0)
    await other.close()
    await store.close()


async def test_no_count_is_had_of_servers_that_do_not_serve() -> None:
    """One that is away, one that loads its data, and one that answers something else for ever."""

    async def load(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(4)
        writer.write(b"This ZooKeeper instance is not currently serving requests\n")
        writer.close()

    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while True:
                writer.write(b"x" * 1000)
                await writer.drain()

    servers = [await asyncio.start_server(each, "127.0.0.1", 0) for each in (load, babble)]
    ports = [server.sockets[0].getsockname()[1] for server in servers]

    async with asyncio.timeout(seconds(5)):
        assert (
            await newest_zxid([("127.0.0.1", each) for each in [*ports, free_port(set())]]) is None
        )
    for server in servers:
        server.close()
        await server.wait_closed()
