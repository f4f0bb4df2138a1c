"""A bookie with copies too many, another one that has the same, and the metadata that they look at."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random

import pytest

from bookie_server.bookie import Bookie
from bookie_server.client.local import LocalBookieClient
from bookie_server.collection.peers import Peers
from bookie_server.collection.surplus import SurplusDropper
from bookie_server.wire.messages import Section, Status
from bookkeeper_metadata.bookies import BookieRegistry
from bookkeeper_metadata.cluster import initialize
from bookkeeper_metadata.endpoints import BOOKIE_ENDPOINT, GRPC, BookieServiceInfo, Endpoint
from bookkeeper_metadata.ledgers import LedgerStore
from bookkeeper_metadata.model import Fragment, LedgerMetadata
from bookkeeper_metadata.store.interface import Registration
from bookkeeper_metadata.store.memory import MemoryStore
from bookkeeper_metadata.underreplication import Underreplication
from tests.doubles.bookies import Faults, FaultyClient
from tests.doubles.records import add, section
from tests.doubles.storage import running_bookie

ROOT = "/ledgers"
OWN, MEMBER, OTHER = "b0:1", "b1:1", "b2:1"
ADDRESS = "127.0.0.1:4000"
OTHERS = LedgerMetadata(
    ensemble_size=1, write_quorum=1, ack_quorum=1, fragments=(Fragment(0, (MEMBER,)),)
)
CLOSED = OTHERS.in_recovery().closed(0, 1)


class Connection(FaultyClient):
    """One that says whether it was closed."""

    is_closed = False

    async def close(self) -> None:
        self.is_closed = True
        await super().close()


class Scene:
    """A bookie, another one that has the same entries, and the metadata it looks at."""

    def __init__(self, bookie: Bookie, member: Bookie) -> None:
        self.bookie = bookie
        self.member = member
        self.faults = Faults()
        """Of the other one."""
        self.connections: list[Connection] = []
        """All that were ever made."""
        self.registrations: dict[str, Registration] = {}
        self.store = MemoryStore()
        self.ledgers = LedgerStore(self.store, ROOT, random=Random(0))
        self.marks = Underreplication(self.store, ROOT, random=Random(1))

    def dropper(self, store: MemoryStore | None = None) -> SurplusDropper:
        """With a metadata session of its own."""
        over = store or MemoryStore(self.store.tree)
        return SurplusDropper(
            self.bookie,
            OWN,
            LedgerStore(over, ROOT, random=Random(2)),
            Underreplication(over, ROOT, random=Random(3)),
            partial(Peers, BookieRegistry(over, ROOT), self._connect),
        )

    def _connect(self, bookie_id: str, endpoint: Endpoint) -> Connection:
        assert endpoint.address == ADDRESS
        bookie = {OWN: self.bookie, MEMBER: self.member}[bookie_id]
        made = Connection(LocalBookieClient(bookie_id, bookie), self.faults)
        self.connections.append(made)
        return made

    async def register(self, bookie_id: str, *, readonly: bool = False) -> None:
        """As a bookie that listens where all here do."""
        host, port = ADDRESS.split(":")
        info = BookieServiceInfo((Endpoint(BOOKIE_ENDPOINT, host, int(port), GRPC),))
        registry = BookieRegistry(self.store, ROOT)
        self.registrations[bookie_id] = await registry.register(bookie_id, info, readonly=readonly)

    async def make_readonly(self, bookie_id: str) -> None:
        """It serves what it has, and takes nothing new."""
        writable = self.registrations[bookie_id]
        await self.register(bookie_id, readonly=True)
        await writable.withdraw()

    async def make(self, metadata: LedgerMetadata = CLOSED, count: int = 1) -> int:
        """Ledgers with an entry each at rest on the bookie; returns the last one's id."""
        made = [(await self.ledgers.create(metadata))[0] for _ in range(count)]
        for ledger_id in made:
            for bookie in (self.bookie, self.member):
                assert await add(bookie, section([b"x"], ledger_id=ledger_id)) is Status.OK
        self.rest()
        return made[-1]

    def rest(self) -> None:
        """Have all that came be in entry logs."""
        self.bookie.storage.checkpoint_now()

    async def send_copy(self, ledger_id: int) -> Status:
        """A mender's add of the entry."""
        copy: Section = replace(section([b"x"], ledger_id=ledger_id), is_recovery=True)
        return await add(self.bookie, copy)


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with (
        running_bookie(tmp_path / "own", checkpoint_interval_ms=3_600_000) as bookie,
        running_bookie(tmp_path / "member") as member,
    ):
        made = Scene(bookie, member)
        await initialize(made.store, ROOT, random=Random(0))
        for name in (OWN, MEMBER):
            await made.register(name)
        yield made
