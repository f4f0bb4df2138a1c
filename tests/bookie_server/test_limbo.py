"""A bookie whose files were damaged denies nothing it may once have acknowledged."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from unittest.mock import Mock

import pytest

from bookie_server.bookie import Bookie
from bookie_server.integrity.limbo import READS_IN_FLIGHT_MAX, put_ledgers_in_limbo
from bookie_server.wire.digest import master_key
from bookie_server.wire.messages import ReadLacRequest, ReadRequest, Status
from bookkeeper_metadata.cluster import initialize
from bookkeeper_metadata.ledgers import LedgerStore
from bookkeeper_metadata.model import Fragment, LedgerMetadata
from bookkeeper_metadata.paths import LedgerLayout, Paths
from bookkeeper_metadata.store.memory import MemoryStore
from bookkeeper_metadata.store.operations import Node
from tests.doubles import records
from tests.doubles.records import section
from tests.doubles.storage import (
    answer_new,
    crash,
    open_files,
    running_bookie,
    small_settings,
    start_bookie,
)
from tests.doubles.stores import LaggingStore
from tests.doubles.waits import pass_turns

ROOT = "/ledgers"
OURS = LedgerMetadata(
    ensemble_size=1, write_quorum=1, ack_quorum=1, fragments=(Fragment(0, ("b0:1",)),)
)
NOT_OURS = replace(OURS, fragments=(Fragment(0, ("b9:1",)),))


async def cluster_with(ledgers: Mapping[str, LedgerMetadata]) -> tuple[MemoryStore, dict[str, int]]:
    """A cluster's metadata with these ledgers, and their ids."""
    store = MemoryStore()
    await initialize(store, ROOT, random=Random(0))
    create = LedgerStore(store, ROOT, random=Random(0)).create
    return store, {name: (await create(metadata))[0] for name, metadata in ledgers.items()}


async def add(bookie: Bookie, ledger_id: int, payload: bytes, entry_id: int = 0) -> Status:
    return await records.add(bookie, section([payload], entry_id, ledger_id=ledger_id))


async def status_of(bookie: Bookie, ledger_id: int, entry_id: int) -> Status:
    request = ReadRequest(ledger_id=ledger_id, first_entry=entry_id, last_entry=entry_id)
    reply = await bookie.read(request)
    return reply.missing[0].status if reply.missing else Status.OK


@pytest.mark.conformance("S8")
async def test_a_journal_damaged_in_the_middle_never_becomes_absence(tmp_path: Path) -> None:
    store, ids = await cluster_with(
        {
            "open": OURS,
            "closed": OURS.closed(0, 12),
            "forgotten": OURS.closed(0, 12),
            "other": NOT_OURS,
        }
    )
    bookie = await start_bookie(tmp_path)
    assert await add(bookie, ids["open"], b"payload-zero") is Status.OK
    assert await add(bookie, ids["closed"], b"payload-one") is Status.OK
    await crash(bookie)
    file = max((tmp_path / "j").glob("*.txn"))
    data = bytearray(file.read_bytes())
    data[data.index(b"payload-zero")] ^= 0xFF  # a synced record; later groups stay valid
    file.write_bytes(data)

    storage = answer_new(open_files(tmp_path))
    assert storage.contents.is_damaged
    assert storage.recovery.damage
    bookie = Bookie(storage, small_settings(tmp_path))
    assert await status_of(bookie, 999, 0) is Status.UNKNOWN  # until the damage is judged
    await put_ledgers_in_limbo(storage, store, ROOT, "b0:1")
    await bookie.start()

    assert await status_of(bookie, ids["open"], 0) is Status.UNKNOWN
    assert await status_of(bookie, ids["closed"], 0) is Status.OK
    assert await status_of(bookie, ids["closed"], 1) is Status.UNKNOWN
    assert await status_of(bookie, ids["other"], 0) is Status.NO_LEDGER
    assert (await bookie.read_lac(ReadLacRequest(ids["open"]))).status is Status.UNKNOWN
    assert await add(bookie, ids["open"], b"late", 1) is Status.LIMBO
    # Sent before somebody closed it, this add must not make an ack quorum now.
    assert await add(bookie, ids["forgotten"], b"late", 0) is Status.LIMBO
    assert await add(bookie, 4242, b"new ledger") is Status.OK
    await bookie.stop()

    again = open_files(tmp_path)
    for name in ("open", "closed"):
        facts = again.contents.ledgers[ids[name]]
        assert (facts.is_limbo, facts.is_fenced) == (True, False)
    again.close()


@pytest.mark.conformance("S1")
async def test_a_torn_tail_is_dropped_and_what_was_acknowledged_stays(tmp_path: Path) -> None:
    bookie = await start_bookie(tmp_path)
    assert await add(bookie, 7, b"payload-zero") is Status.OK
    assert await add(bookie, 7, b"x" * 3000, 1) is Status.OK
    await crash(bookie)
    file = max((tmp_path / "j").glob("*.txn"))
    data = bytearray(file.read_bytes())
    at = data.index(b"x" * 400) + 1000
    at -= at % 512
    data[at : at + 512] = bytes(512)  # one sector of the last group never reached the disk
    file.write_bytes(data)

    async with running_bookie(tmp_path) as bookie:
        assert not bookie.storage.contents.is_damaged
        assert bookie.storage.recovery.groups_torn == 1
        assert bookie.storage.recovery.bytes_torn >= 3000
        assert await status_of(bookie, 7, 0) is Status.OK
        assert await status_of(bookie, 7, 1) is Status.NO_ENTRY


async def test_reads_wait_for_adds_on_their_way_to_the_disk(tmp_path: Path) -> None:
    async with running_bookie(tmp_path) as bookie:
        adding = asyncio.ensure_future(add(bookie, 7, b"payload-zero"))
        await asyncio.sleep(0)

        assert await status_of(bookie, 7, 0) is Status.OK
        assert await adding is Status.OK


async def test_the_same_entry_again_is_fine_and_another_one_is_a_conflict(tmp_path: Path) -> None:
    async with running_bookie(tmp_path) as bookie:
        for _ in range(2):
            assert await add(bookie, 7, b"payload-zero") is Status.OK
        assert await add(bookie, 7, b"payload-evil") is Status.CONFLICT
    async with running_bookie(tmp_path) as bookie:
        assert await add(bookie, 7, b"payload-zero") is Status.OK  # compared with the entry log
        assert await add(bookie, 7, b"payload-evil") is Status.CONFLICT


@pytest.mark.conformance("S2")
async def test_a_failed_fsync_answers_unknown_and_stops_the_bookie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bookie = await start_bookie(tmp_path)
    failing = Mock(side_effect=OSError(5, "Input/output error"))
    monkeypatch.setattr("bookie_server.storage.disk.real_files.os.fdatasync", failing)

    assert await add(bookie, 7, b"payload-zero") is Status.UNKNOWN
    assert bookie.failed.done()
    monkeypatch.undo()
    await crash(bookie)


@pytest.mark.conformance("S8")
async def test_an_emptied_bookie_denies_nothing_of_the_ledgers_that_name_it(tmp_path: Path) -> None:
    """The metadata was asked for damaged directories only. The session it is asked by may lag."""
    replaced = replace(OURS, fragments=(*OURS.fragments, Fragment(5, ("b9:1",))))
    written, ids = await cluster_with({"ours": OURS, "left": replaced, "other": NOT_OURS})
    store = LaggingStore(written.tree, ROOT)
    storage = open_files(tmp_path)
    bookie = Bookie(storage, small_settings(tmp_path))

    assert await status_of(bookie, 999, 0) is Status.UNKNOWN
    await put_ledgers_in_limbo(storage, store, ROOT, "b0:1")
    await bookie.start()
    for name in ("ours", "left"):
        assert await status_of(bookie, ids[name], 0) is Status.UNKNOWN
    assert await status_of(bookie, ids["other"], 0) is Status.NO_LEDGER
    assert await add(bookie, ids["ours"], b"late") is Status.LIMBO
    await bookie.stop()


async def test_after_a_loss_the_master_key_comes_from_the_metadata_not_from_who_asks_first(
    tmp_path: Path,
) -> None:
    """A ledger in limbo had lost its key with the index, and took any."""
    known = replace(OURS, password=b"secret")
    store, ids = await cluster_with({"stored": known, "named": known, "moved": NOT_OURS})
    key, stranger = master_key(b"secret"), master_key(b"other")
    bookie = await start_bookie(tmp_path)
    stored = replace(section([b"x"], ledger_id=ids["stored"]), master_key=key)
    assert await records.add(bookie, stored) is Status.OK
    assert await add(bookie, ids["moved"], b"x") is Status.OK
    await bookie.stop()
    open_files(tmp_path).close()  # in a new journal file: the keys are in the index only
    (tmp_path / "l" / "index").unlink()

    storage = open_files(tmp_path)
    await put_ledgers_in_limbo(storage, store, ROOT, "b0:1")
    await crash(Bookie(storage, small_settings(tmp_path)))

    async with running_bookie(tmp_path) as bookie:
        for name, right in (("stored", key), ("named", key), ("moved", records.KEY)):
            assert await bookie.fence(ids[name], stranger) is Status.UNAUTHORIZED, name
            assert await bookie.fence(ids[name], right) is Status.OK, name


async def test_damage_is_judged_with_many_ledgers_in_flight(tmp_path: Path) -> None:
    """One by one, a start among a million ledgers takes hours."""
    written, ids = await cluster_with({f"ledger {n}": OURS for n in range(300)})
    store = CountingStore(written.tree)

    storage = open_files(tmp_path)
    await put_ledgers_in_limbo(storage, store, ROOT, "b0:1")

    assert READS_IN_FLIGHT_MAX // 2 < store.in_flight_max <= READS_IN_FLIGHT_MAX
    assert all(storage.contents.ledgers[ledger_id].is_limbo for ledger_id in ids.values())
    storage.close()


class CountingStore(MemoryStore):
    """Every read takes a while; counts how many are under way at once."""

    in_flight = in_flight_max = 0

    async def get(self, path: str) -> Node | None:
        self.in_flight += 1
        self.in_flight_max = max(self.in_flight_max, self.in_flight)
        await pass_turns(5)
        self.in_flight -= 1
        return await super().get(path)


async def test_a_ledger_nobody_can_read_stops_no_bookie_and_may_name_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One corrupt node kept every new bookie from starting."""
    store, ids = await cluster_with({"corrupt": OURS, "other": NOT_OURS})
    path = Paths(ROOT).ledger(ids["corrupt"], LedgerLayout.HIERARCHICAL)
    await store.put(path, b"\xff garbage", 0)
    storage = open_files(tmp_path)
    bookie = Bookie(storage, small_settings(tmp_path))

    await put_ledgers_in_limbo(storage, store, ROOT, "b0:1")
    await bookie.start()

    assert await status_of(bookie, ids["corrupt"], 0) is Status.UNKNOWN
    assert await add(bookie, ids["corrupt"], b"late") is Status.LIMBO
    assert await status_of(bookie, ids["other"], 0) is Status.NO_LEDGER
    assert f"ledger_id={ids['corrupt']}" in caplog.text
    await bookie.stop()
