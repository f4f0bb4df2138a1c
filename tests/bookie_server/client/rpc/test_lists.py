"""What a bookie of Apache's holds is known though it has no lists, as with Apache's DbLedgerStorage, which never answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from bookie_server.bookie import Bookie
from bookie_server.client.local import LocalBookieClient
from bookie_server.client.rpc import lists
from bookie_server.client.rpc.client import RpcBookieClient
from bookie_server.client.settings import ConnectionSettings
from bookie_server.memory.budget import Room
from bookie_server.serving.rpc.answering import Answered, Answering, refusal_of
from bookie_server.wire.messages import BookieInfo, EntryList, Status
from bookie_server.wire.rpc import messages
from bookie_server.wire.rpc.statuses import RpcStatus
from tests.doubles.records import encoded_section, write
from tests.doubles.serving import over_rpc_v2, over_rpc_v3, serving_all
from tests.doubles.storage import running_bookie

pytestmark = pytest.mark.integration

LEDGER = 7
SILENT_S = 3.0
MAKERS = {"v2": over_rpc_v2, "v3": over_rpc_v3}


@asynccontextmanager
async def client_of(
    place: Path, version: str, monkeypatch: pytest.MonkeyPatch, *, is_silent: bool = False
) -> AsyncIterator[tuple[RpcBookieClient, Bookie, list[int]]]:
    """A client of a bookie without lists, and of which ledgers it was asked for one."""
    asked: list[int] = []

    async def no_list(_: Answering, ledger_id: int, room: object) -> Answered:
        asked.append(ledger_id)
        if is_silent:
            await asyncio.Event().wait()
        return RpcStatus.EBADREQ, refusal_of(messages.ListEntries(ledger_id))

    monkeypatch.setattr(Answering, "_list", no_list)
    make = MAKERS[version]
    limit_ms = int(SILENT_S * 1_000) if is_silent else 60_000
    settings = ConnectionSettings(read_timeout_ms=limit_ms, add_timeout_ms=60_000)
    async with (
        running_bookie(place) as bookie,
        serving_all(bookie, BookieInfo("b:1"), place) as ports,
    ):
        client = make("b:1", ports.address(make), settings)
        try:
            yield client, bookie, asked
        finally:
            await client.close()


def ids_of(listed: EntryList) -> list[int]:
    return [id for span in listed.held for id in range(span.first_entry, span.last_entry + 1)]


@pytest.mark.parametrize("version", MAKERS)
async def test_what_is_held_is_found_by_reading(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So that there are several pages.
    monkeypatch.setattr(lists, "_READS_OF_PAGE", 3)
    random = Random(version)
    held = sorted(random.sample(range(300), 60)) + list(range(400, 1_200))
    async with client_of(tmp_path, version, monkeypatch) as (client, bookie, asked):
        for entry_id in held:
            section = encoded_section([bytes(random.randrange(3_000))], entry_id)
            assert await write(client, section) is Status.OK
        listed = await client.list_entries(LEDGER)
        assert listed.status is Status.OK
        assert ids_of(listed) == held
        known = await LocalBookieClient("b:1", bookie).list_entries(LEDGER)
        assert ids_of(known) == held
        assert len(asked) == 1, "it is not asked again and again"


@pytest.mark.parametrize("version", MAKERS)
async def test_a_ledger_that_it_does_not_have_is_none(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with client_of(tmp_path, version, monkeypatch) as (client, _, _):
        assert await client.list_entries(99) == EntryList(Status.NO_LEDGER)


async def test_an_entry_that_it_may_hold_leaves_the_list_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where its block is damaged: said not to hold it, it would lose its place."""
    batch, read = Answering._batch, Answering._read

    async def unreadable(self: Answering, request: messages.ReadEntry, room: Room) -> Answered:
        if request.entry_id == 3:
            return RpcStatus.EIO, refusal_of(request)
        return await read(self, request, room)

    async def doubtful(self: Answering, request: messages.BatchRead, room: Room) -> Answered:
        if request.first_entry == 3:
            return RpcStatus.EIO, refusal_of(request)
        return await batch(self, replace(request, count_max=3 - request.first_entry), room)

    monkeypatch.setattr(Answering, "_batch", doubtful)
    monkeypatch.setattr(Answering, "_read", unreadable)
    async with client_of(tmp_path, "v2", monkeypatch) as (client, _, _):
        assert await write(client, encoded_section([b"x"] * 6, 0)) is Status.OK
        assert (await client.list_entries(LEDGER)).status is Status.UNKNOWN


async def test_one_that_says_nothing_is_asked_whether_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with client_of(tmp_path, "v2", monkeypatch, is_silent=True) as (client, _, asked):
        assert await write(client, encoded_section([b"x"], 0)) is Status.OK
        assert ids_of(await client.list_entries(LEDGER)) == [0]
        assert len(asked) == 1


async def test_one_that_is_gone_is_unreachable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with client_of(tmp_path, "v2", monkeypatch, is_silent=True) as (client, _, _):
        monkeypatch.setattr(Answering, "_info", _never)
        assert (await client.list_entries(LEDGER)).status is Status.UNREACHABLE


async def _never(_: Answering, requested: int) -> Answered:
    await asyncio.Event().wait()
    raise AssertionError(requested)
