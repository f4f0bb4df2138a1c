"""A ledger in limbo that still has entries: what is there is returned, and of the rest nothing is denied."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from bookie_server.bookie import Bookie
from bookie_server.integrity.limbo import put_ledgers_in_limbo, state_after_loss
from bookie_server.wire.messages import ListRequest, LongPoll, ReadLacRequest, ReadRequest, Status
from bookie_server.wire.record import encode_lac_packet
from bookkeeper_metadata.model import Fragment, LedgerMetadata
from bookkeeper_metadata.store.memory import MemoryStore
from tests.bookie_server.test_limbo import ROOT, cluster_with
from tests.doubles import records
from tests.doubles.records import CRC32C, KEY, section
from tests.doubles.storage import open_files, running_bookie, small_settings

KEPT = (2, 3, 6)
"""Of ledger 7; 0, 1, 4, 5 and what lies behind may be lost."""
LOST = (0, 1, 4, 5, 7, 700)


async def serving(place: Path, store: MemoryStore) -> Bookie:
    """The bookie that is found at this place, after its damage was judged."""
    storage = open_files(place)
    await put_ledgers_in_limbo(storage, store, ROOT, "b0:1")
    bookie = Bookie(storage, small_settings(place))
    await bookie.start()
    return bookie


@pytest.fixture(
    params=["entries alone", "a LAC with them", "an explicit LAC", "after another start"]
)
async def bookie(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bookie]:
    """Its ledger 7 is in limbo, with what is left of it."""
    async with running_bookie(tmp_path) as sound:
        for entry_id in KEPT:
            lac = -1 if request.param == "entries alone" else entry_id - 1
            await records.add(sound, section([b"%d" % entry_id], entry_id, lac=lac))
        if request.param == "an explicit LAC":
            await sound.write_lac(7, KEY, encode_lac_packet(CRC32C, 7, 6))
    store, _ = await cluster_with({})
    bookie = await serving(tmp_path, store)
    if request.param == "after another start":
        await bookie.stop()
        storage = open_files(tmp_path)
        bookie = Bookie(storage, small_settings(tmp_path))
        await bookie.start()
    yield bookie
    await bookie.stop()


async def test_what_is_there_is_returned_and_nothing_else_denied(bookie: Bookie) -> None:
    for entry_id in (*KEPT, *LOST):
        request = ReadRequest(ledger_id=7, first_entry=entry_id, last_entry=entry_id)
        for asked in (request, replace(request, is_fencing=True, master_key=KEY)):
            reply = await bookie.read(asked)
            said = [part.status for part in reply.missing]
            assert said == ([] if entry_id in KEPT else [Status.UNKNOWN])
    whole = await bookie.read(ReadRequest(ledger_id=7, first_entry=0, last_entry=9))
    assert {part.status for part in whole.missing} == {Status.UNKNOWN}


async def test_the_highest_entry_that_is_left_is_not_taken_for_the_highest_there_was(
    bookie: Bookie,
) -> None:
    """A recovery that believed it would close the ledger there."""
    poll = LongPoll(previous_lac=-1, timeout_ms=20_000)
    fencing = ReadLacRequest(7, is_fencing=True, master_key=KEY)
    for request in (ReadLacRequest(7), ReadLacRequest(7, long_poll=poll), fencing):
        reply = await bookie.read_lac(request)
        assert (reply.status, reply.last_entry, reply.records) == (Status.UNKNOWN, None, b"")
    assert bookie.list_entries(ListRequest(7)).status is Status.LIMBO, (
        "what is not listed may be lost"
    )


async def test_a_writers_adds_are_refused_and_a_recoverys_are_not(bookie: Bookie) -> None:
    again, new = section([b"2"], 2), section([b"7"], 7)

    for added in (again, new):
        assert await records.add(bookie, added) is Status.LIMBO
    assert await records.add(bookie, replace(new, is_recovery=True)) is Status.OK
    assert await bookie.fence(7, KEY) is Status.OK
    for added in (again, new):
        assert await records.add(bookie, added) is Status.FENCED


HERE, THERE = ("b0:1", "b1:1", "b2:1"), ("b3:1", "b1:1", "b2:1")
NOWHERE = LedgerMetadata(
    ensemble_size=3,
    write_quorum=3,
    ack_quorum=2,
    fragments=tuple(Fragment(4 * number, THERE) for number in range(4)),
)


@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("is_closed", [True, False])
def test_every_fragment_counts_and_every_place_in_it(
    number: int, place: int, is_closed: bool
) -> None:
    fragments = list(NOWHERE.fragments)
    ensemble = (*HERE[-place:], *HERE[:-place]) if place else HERE
    fragments[number] = Fragment(4 * number, ensemble)
    metadata = replace(NOWHERE, fragments=tuple(fragments))
    metadata = metadata.closed(20, 200) if is_closed else metadata

    state = state_after_loss(metadata, "b0:1")

    assert state is not None
    assert (state.is_limbo, state.is_fenced) == (True, False)


def test_a_ledger_that_never_named_the_bookie_is_none_of_its_losses() -> None:
    assert state_after_loss(NOWHERE, "b0:1") is None
