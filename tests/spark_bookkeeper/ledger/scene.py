"""What most tests of ledgers stand on: a cluster in this process, a client of it, its writer."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial

import pytest

from bookie_server.wire.messages import EncodedSection, Status
from bookkeeper_metadata.foundation.errors import BookKeeperError
from bookkeeper_metadata.model import LedgerMetadata, Transform, Versioned
from spark_bookkeeper.ledger.client import LedgerClient
from spark_bookkeeper.ledger.protocol.quorum import QuorumConfig
from spark_bookkeeper.ledger.read_handle import ReadHandle
from spark_bookkeeper.ledger.write_handle import WriteHandle
from tests.doubles.bookies import Faults
from tests.doubles.cluster import InProcessCluster

ACK_BY_ALL = pytest.mark.parametrize("quorums", [(3, 3, 3)], ids=["ack-by-all"])
"""Each bookie that fails has to be replaced."""


@dataclass(frozen=True)
class Scene:
    """The writer's ledger is new, with the test's parameter ``quorums`` if it has one."""

    cluster: InProcessCluster
    client: LedgerClient
    writer: WriteHandle

    @property
    def ledger_id(self) -> int:
        return self.writer.ledger_id

    @property
    def ensemble(self) -> tuple[str, ...]:
        """The present one."""
        return self.writer.metadata.last_fragment.ensemble

    @property
    def faults(self) -> list[Faults]:
        """Of the present ensemble, by position."""
        return [self.cluster.faults[bookie_id] for bookie_id in self.ensemble]

    def fail(self, *positions: int, **how: object) -> list[str]:
        """Kill the bookies at these positions of the present ensemble, or set what ``how`` says."""
        failed = [self.ensemble[position] for position in positions]
        self.cluster.set_faults(*failed, **(how or {"is_dead": True}))
        return failed

    async def metadata(self) -> LedgerMetadata:
        """The ledger's, as stored now."""
        return await self.client.ledger_metadata(self.ledger_id)

    async def change(self, transform: Transform[BookKeeperError]) -> Versioned:
        """Change the ledger's metadata behind its writer's back."""
        known = await self.client.cluster.ledgers.read(self.ledger_id)
        return await self.client.cluster.update(self.ledger_id, transform, known)

    async def open(self, seed: int = 2, *, recovery: bool = False) -> ReadHandle:
        """As another client."""
        return await self.cluster.client(seed).open_ledger(self.ledger_id, recovery=recovery)

    async def recover(self, seed: int = 2) -> ReadHandle:
        """As another client."""
        return await self.open(seed, recovery=True)

    async def read(self) -> list[bytes]:
        """As a reader that opens the ledger now sees it."""
        return await read_all(await self.client.open_ledger(self.ledger_id))

    async def answers_to(self, section: EncodedSection) -> list[Status]:
        """What each of the present ensemble answers an add that comes late, from a new client."""
        answers: dict[str, Status] = {}
        context = self.cluster.client(9).cluster
        for bookie_id in self.ensemble:
            context.client(bookie_id).write(section, partial(answers.__setitem__, bookie_id))
        await self.settle_adds()
        return [answers[bookie_id] for bookie_id in self.ensemble]

    async def settle_adds(self) -> None:
        """Let every add that reached a bookie become durable."""
        await asyncio.sleep(0)
        for bookie in self.cluster.bookies.values():
            await bookie.wait_until_settled()
        await asyncio.sleep(0)

    async def leave_tail(self, *, on: set[int]) -> list[Faults]:
        """Two acknowledged entries, then one that reaches only these positions."""
        faults = self.faults
        await self.writer.append_many([b"0", b"1"])
        for position, fault in enumerate(faults):
            fault.drops_writes = position not in on
        self.writer.append_async(b"tail").add_done_callback(
            lambda f: f.cancelled() or f.exception()
        )
        await self.settle_adds()
        for fault in faults:
            fault.drops_writes = False
        return faults


def numbers(count: int) -> list[bytes]:
    """Payloads."""
    return [b"%d" % number for number in range(count)]


async def read_all(reader: ReadHandle) -> list[bytes]:
    """Every confirmed entry's payload."""
    return [bytes(entry.payload) async for entry in reader.read(0, reader.last_add_confirmed)]


def assert_at_ack_quorum(
    cluster: InProcessCluster, ledger_id: int, metadata: LedgerMetadata
) -> None:
    """Each entry is stored by AQ of the bookies that its ledger's metadata names for it."""
    quorum = QuorumConfig.of(metadata)
    for entry_id in range(metadata.last_entry + 1):
        ensemble = metadata.fragment_of(entry_id).ensemble
        write_set = {ensemble[position] for position in quorum.write_set(entry_id)}
        holders = write_set & cluster.copies(ledger_id, entry_id).keys()
        assert len(holders) >= quorum.ack_quorum
