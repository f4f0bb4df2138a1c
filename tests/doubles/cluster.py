"""A cluster in one process: real bookies on real files, memory metadata, faults at the boundary.

Every request passes a :class:`FaultyClient`, so a test decides per bookie what the network and a
broken peer do; the bytes on either side are the wire's.
"""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from random import Random

from bookie_server.bookie import Bookie
from bookie_server.client.interface import BookieClient
from bookie_server.client.local import LocalBookieClient
from bookie_server.client.settings import ConnectionSettings
from bookie_server.integrity.limbo import put_ledgers_in_limbo
from bookkeeper_metadata.bookies import BookieRegistry
from bookkeeper_metadata.cluster import initialize
from bookkeeper_metadata.cookies import Cookie, CookieStore
from bookkeeper_metadata.endpoints import BOOKIE_ENDPOINT, GRPC, BookieServiceInfo, Endpoint
from bookkeeper_metadata.store.interface import MetadataStore, Registration
from bookkeeper_metadata.store.memory import MemoryStore
from spark_bookkeeper.ledger.client import LedgerClient
from spark_bookkeeper.ledger.context import LedgerContext
from spark_bookkeeper.settings import ClientSettings
from tests.doubles.bookies import Faults, FaultyClient
from tests.doubles.storage import open_files, small_settings

ROOT = "/ledgers"


class InProcessCluster:
    """Bookies ``b0:1``, ``b1:1``, …; use inside :func:`running_cluster`."""

    def __init__(self, directory: Path, settings: ClientSettings) -> None:
        self.store = MemoryStore()
        self.faults: dict[str, Faults] = {}
        self.bookies: dict[str, Bookie] = {}
        self.registrations: dict[str, Registration] = {}
        self.ports: dict[str, int] = {}
        """Where bookies listen that moved; a client with another address reaches nobody."""
        self._clients: dict[str, list[FaultyClient]] = {}
        self._directory = directory
        self._settings = settings

    async def start_bookie(self, bookie_id: str) -> None:
        """Open the storage of that name, write its cookie and register."""
        await self.restart_bookie(bookie_id)
        cookie = Cookie(bookie_id, ("/j",), ("/l",))
        await self.cookies.write_cookie(cookie, await self.cookies.read(bookie_id))
        await self._register(bookie_id)

    async def _register(self, bookie_id: str) -> None:
        host, port = bookie_id.split(":")
        at = self.ports.get(bookie_id, int(port))
        info = BookieServiceInfo((Endpoint(BOOKIE_ENDPOINT, host, at, GRPC),))
        registry = BookieRegistry(self.store, ROOT)
        self.registrations[bookie_id] = await registry.register(bookie_id, info)

    async def restart_bookie(self, bookie_id: str) -> None:
        """Open the storage of a bookie that was stopped, from what is on disk."""
        place = self.place_of(bookie_id)
        storage = open_files(place)
        if storage.contents.is_damaged:
            await put_ledgers_in_limbo(storage, self.store, ROOT, bookie_id)
        bookie = self.bookies[bookie_id] = Bookie(storage, small_settings(place))
        await bookie.start()
        self.faults.setdefault(bookie_id, Faults())
        for client in self._clients.get(bookie_id, ()):
            client.inner = LocalBookieClient(bookie_id, bookie)  # it connects anew

    @property
    def cookies(self) -> CookieStore:
        """Of the bookies that ever started here."""
        return CookieStore(self.store, ROOT)

    async def take_away(self, bookie_id: str) -> None:
        """It is dead, and its registration has expired."""
        self.set_faults(bookie_id, is_dead=True)
        await self.registrations[bookie_id].withdraw()

    async def bring_back(self, bookie_id: str) -> None:
        """With everything it had."""
        self.set_faults(bookie_id, is_dead=False)
        await self._register(bookie_id)

    async def wipe(self, bookie_id: str) -> None:
        """It is started again on empty directories, which its operator has said are lost."""
        await self.bookies[bookie_id].stop()
        shutil.rmtree(self.place_of(bookie_id))
        await self.restart_bookie(bookie_id)

    def place_of(self, bookie_id: str) -> Path:
        """Where its directories are."""
        return self._directory / bookie_id.replace(":", "_")

    async def move(self, bookie_id: str, port: int) -> None:
        """It is restarted under the same id, at another address."""
        await self.registrations[bookie_id].withdraw()
        self.ports[bookie_id] = port
        await self._register(bookie_id)

    def _connect(
        self, bookie_id: str, endpoint: Endpoint, settings: ConnectionSettings
    ) -> BookieClient:
        if bookie_id not in self.bookies:
            # Metadata may name whom there never was.
            anyone = LocalBookieClient(bookie_id, next(iter(self.bookies.values())))
            return FaultyClient(anyone, Faults(), is_there=lambda: False)
        inner = LocalBookieClient(bookie_id, self.bookies[bookie_id])
        port = endpoint.port
        client = FaultyClient(
            inner,
            self.faults[bookie_id],
            is_there=lambda: self.ports.get(bookie_id, int(bookie_id.split(":")[1])) == port,
        )
        self._clients.setdefault(bookie_id, []).append(client)
        return client

    def connect(self, bookie_id: str, endpoint: Endpoint) -> BookieClient:
        """A connection to a bookie, which suffers its faults."""
        return self._connect(bookie_id, endpoint, self._settings.connection)

    def client(
        self, seed: int = 1, store: MetadataStore | None = None, **settings: int
    ) -> LedgerClient:
        """A client of its own, as another process would have, over a session of its own if given."""
        cluster = LedgerContext(
            store or self.store,
            ROOT,
            settings=replace(self._settings, **settings),  # type: ignore[arg-type]
            random=Random(seed),
            make_client=self._connect,
        )
        return LedgerClient(cluster)

    def set_faults(self, *bookie_ids: str, **changes: object) -> None:
        """Change the faults of these bookies alike, or of all."""
        for bookie_id in bookie_ids or self.faults:
            for name, value in changes.items():
                assert hasattr(self.faults[bookie_id], name)
                setattr(self.faults[bookie_id], name, value)

    def copies(self, ledger_id: int, entry_id: int) -> dict[str, bytes]:
        """By bookie: the record it holds of an entry, whoever should."""
        found: dict[str, bytes] = {}
        for bookie_id, bookie in self.bookies.items():
            contents = bookie.storage.contents
            plan = contents.plan_read(ledger_id, entry_id, entry_id, size_bytes_max=1)
            if record := b"".join(bookie.storage.execute(plan).chunks):
                found[bookie_id] = record
        return found


@asynccontextmanager
async def running_cluster(
    directory: Path, bookies: int = 3, **settings: int
) -> AsyncIterator[InProcessCluster]:
    """A cluster of ``bookies``; stops them at the end.

    Explicit LACs are off unless asked for: what bookies know is for the tests to decide. Nobody waits
    for bookies either.
    """
    settings = {"explicit_lac_interval_ms": 0, "bookie_wait_timeout_ms": 0} | settings
    cluster = InProcessCluster(directory, replace(ClientSettings(), **settings))  # type: ignore[arg-type]
    await initialize(cluster.store, ROOT, random=Random(0))
    for number in range(bookies):
        await cluster.start_bookie(f"b{number}:1")
    try:
        yield cluster
    finally:
        for bookie in cluster.bookies.values():
            await bookie.stop()
        await cluster.store.close()
