"""Batch reads: a bookie that knows none is read entry by entry, and one whose first answer was lost only for a while."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bookie_server.client.rpc import reads
from bookie_server.client.rpc.client import RpcBookieClient
from bookie_server.client.rpc.reads import RpcReads
from bookie_server.client.settings import ConnectionSettings
from bookie_server.wire.messages import BookieInfo, IdRange, ReadReply, ReadRequest, Status
from bookie_server.wire.rpc import messages, v3
from bookie_server.wire.rpc.statuses import RpcStatus
from tests.doubles.records import encoded_section, write
from tests.doubles.serving import over_rpc_v2, serving_all
from tests.doubles.storage import running_bookie

pytestmark = pytest.mark.integration

LEDGER, IDS = 7, [0, 1, 2, 3, 4]


@asynccontextmanager
async def client_of(place: Path, held: Sequence[int]) -> AsyncIterator[RpcBookieClient]:
    """Of a bookie that has these entries."""
    settings = ConnectionSettings(read_timeout_ms=60_000, add_timeout_ms=60_000)
    async with (
        running_bookie(place) as bookie,
        serving_all(bookie, BookieInfo("b:1"), place) as ports,
    ):
        client = over_rpc_v2("b:1", ports.rpc_address, settings)
        for entry_id in held:
            assert await write(client, encoded_section([b"x"], entry_id)) is Status.OK
        yield client
        await client.close()


async def test_one_lost_batch_does_not_end_batches_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_batch, is_lost = RpcReads._read_batch, [True, False, False]
    batches: list[bool] = []

    async def lose_the_first(self: RpcReads, request: ReadRequest) -> ReadReply | None:
        batches.append(is_lost.pop(0))
        return None if batches[-1] else await read_batch(self, request)

    monkeypatch.setattr(RpcReads, "_read_batch", lose_the_first)
    async with client_of(tmp_path, IDS) as client:
        request = ReadRequest(ledger_id=LEDGER, first_entry=IDS[0], last_entry=IDS[-1])

        async def ids() -> list[int]:
            return [id for run in (await client.read(request)).runs for id in run.entry_ids]

        assert await ids() == IDS
        assert await ids() == IDS
        assert batches == [True], "for a while it is taken for one that knows none"
        client._reads._batches_again_s -= reads.BATCHES_AGAIN_S
        assert await ids() == IDS
        assert batches == [True, False]


async def test_what_lies_behind_an_entry_that_is_not_there_is_returned(tmp_path: Path) -> None:
    """A batch that begins with one is refused as a whole, though that says nothing of the others."""
    async with client_of(tmp_path, [3, 4, 7]) as client:
        reply = await client.read(ReadRequest(ledger_id=LEDGER, first_entry=1, last_entry=8))
    assert [id for run in reply.runs for id in run.entry_ids] == [3, 4, 7]
    assert [(part.first_entry, part.last_entry) for part in reply.missing] == [
        (1, 2),
        (5, 6),
        (8, 8),
    ]
    assert {part.status for part in reply.missing} == {Status.NO_ENTRY}


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        (RpcStatus.EIO, None),
        (RpcStatus.ETOOMANYREQUESTS, Status.BUSY),
        (RpcStatus.EUNKNOWNLEDGERSTATE, Status.LIMBO),
        (RpcStatus.ENOLEDGER, Status.NO_LEDGER),
    ],
)
async def test_a_refusal_of_a_batch_is_one_of_the_bookie_or_of_the_first_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: RpcStatus, meant: Status | None
) -> None:
    """Who is busy would have been asked for each entry by itself; of whose disk cannot read one, the others are read."""

    async def refuse(request: messages.BatchRead) -> v3.Answer:
        reply = messages.BatchReply(request.ledger_id, request.first_entry, request.number)
        return v3.Answer(v3.Head(1, 1), said, reply)

    async with client_of(tmp_path, IDS) as client:
        monkeypatch.setattr(client._reads, "_ask_batch", refuse)
        request = ReadRequest(ledger_id=LEDGER, first_entry=IDS[0], last_entry=IDS[-1])
        reply = await client.read(request)

    if meant is None:
        assert [id for run in reply.runs for id in run.entry_ids] == IDS
    else:
        assert (reply.runs, reply.missing) == ((), (IdRange(IDS[0], IDS[-1], meant),))
