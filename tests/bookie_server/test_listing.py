"""The list of a ledger's entries comes in pages: of a huge striped ledger it was one message, for which
the event loop stopped for seconds."""

from __future__ import annotations

from pathlib import Path

import pytest

from bookie_server.bookie import Bookie
from bookie_server.client import interface
from bookie_server.client.interface import BookieClient
from bookie_server.client.local import LocalBookieClient
from bookie_server.wire import bookie_pb2 as pb
from bookie_server.wire import codec
from bookie_server.wire.messages import EntryList, IdRange, ListRequest, Status
from tests.doubles.records import add, section
from tests.doubles.storage import running_bookie

GROUPS = 10
HELD = tuple(IdRange(3 * group, 3 * group + 1, Status.OK) for group in range(GROUPS))
"""What E=3, WQ=2 leaves a bookie: two ids of every three."""


async def fill(bookie: Bookie) -> None:
    """Some groups in an entry log, the others in memory."""
    for part in HELD:
        status = await add(bookie, section([b"x", b"y"], part.first_entry))
        assert status is Status.OK
        if part.first_entry == 12:
            bookie.storage.checkpoint_now()


class Counting(LocalBookieClient):
    pages = 0

    async def list_page(self, ledger_id: int, first_entry: int) -> EntryList:
        self.pages += 1
        return await super().list_page(ledger_id, first_entry)


@pytest.mark.parametrize(("ranges_max", "pages"), [(1, GROUPS), (3, 4), (GROUPS, 1), (99, 1)])
async def test_a_client_puts_the_pages_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ranges_max: int, pages: int
) -> None:
    monkeypatch.setattr("bookie_server.reads.reader.LIST_RANGES_MAX", ranges_max)
    async with running_bookie(tmp_path) as bookie:
        await fill(bookie)
        client = Counting("b:1", bookie)

        assert await client.list_entries(7) == EntryList(Status.OK, HELD)
        assert client.pages == pages
        assert await client.list_entries(8) == EntryList(Status.NO_LEDGER)


async def test_a_page_begins_where_it_was_asked_to(tmp_path: Path) -> None:
    async with running_bookie(tmp_path) as bookie:
        await fill(bookie)

        page = bookie.list_entries(ListRequest(7, first_entry=13, ranges_max=2))

    held = (IdRange(13, 13, Status.OK), IdRange(15, 16, Status.OK))
    assert page == EntryList(Status.OK, held, next_entry=18)


async def test_a_client_that_knows_no_pages_gets_all_or_is_told_that_some_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To version 0.1 a page would be a list that denies all the entries behind it."""
    asked = pb.ListEntriesRequest(ledger_id=7).SerializeToString()
    async with running_bookie(tmp_path) as bookie:
        await fill(bookie)
        assert bookie.list_entries(codec.parse_list_entries_request(asked)) == EntryList(
            Status.OK, HELD
        )
        monkeypatch.setattr("bookie_server.reads.reader.LIST_RANGES_MAX", GROUPS - 1)

        cut = bookie.list_entries(codec.parse_list_entries_request(asked))

    assert cut.status is Status.UNKNOWN


async def test_pages_that_lead_nowhere_end() -> None:
    class Astray(LocalBookieClient):
        async def list_page(self, ledger_id: int, first_entry: int) -> EntryList:
            return EntryList(Status.OK, HELD[:1], next_entry=2)

    client: BookieClient = Astray("b:1", None)  # type: ignore[arg-type]

    assert (await client.list_entries(7)).status is Status.UNKNOWN


@pytest.mark.parametrize("has_ranges", [False, True])
async def test_a_list_without_an_end_ends(
    has_ranges: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hostile bookie's next page began one id further, for ever."""
    monkeypatch.setattr(interface, "_RANGES_MAX", 1_000)

    async def page(_: LocalBookieClient, __: int, first_entry: int) -> EntryList:
        held = (IdRange(first_entry, first_entry, Status.OK),) if has_ranges else ()
        return EntryList(Status.OK, held, first_entry + 1)

    monkeypatch.setattr(LocalBookieClient, "list_page", page)
    async with running_bookie(tmp_path) as bookie:
        listed = await LocalBookieClient("b:1", bookie).list_entries(7)
    assert listed.status is Status.UNKNOWN
    assert len(listed.held) <= 1_001


class Stuck(LocalBookieClient):
    pages = 0

    async def list_page(self, ledger_id: int, first_entry: int) -> EntryList:
        self.pages += 1
        return EntryList(Status.OK, (IdRange(0, 0, Status.OK),), next_entry=1)


async def test_a_bookie_that_always_sends_the_same_page_is_not_asked_for_ever(
    tmp_path: Path,
) -> None:
    async with running_bookie(tmp_path) as bookie:
        client = Stuck("b:1", bookie)

        assert (await client.list_entries(7)).status is Status.UNKNOWN
        assert client.pages == 2
