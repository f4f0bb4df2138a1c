"""A bookie whose files were damaged denies nothing it may once have acknowledged."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import pytest

from bookie_server.bookie import Bookie
from bookie_server.limbo import put_ledgers_in_limbo
from bookie_server.wire.messages import ReadLacRequest, ReadRequest, Status
from bookkeeper_metadata.cluster import initialize
from bookkeeper_metadata.ledgers import LedgerStore
from bookkeeper_metadata.model import Fragment, LedgerMetadata
from bookkeeper_metadata.store.memory import MemoryStore
from tests.doubles import records
from tests.doubles.records import section
from tests.doubles.storage import answer_new, open_files, small_settings, start_bookie

ROOT = "/ledgers"


async def add(bookie: Bookie, ledger_id: int, payload: bytes, entry_id: int = 0) -> Status:
    return await records.add(bookie, section([payload], entry_id, ledger_id=ledger_id))


async def status_of(bookie: Bookie, ledger_id: int, entry_id: int) -> Status:
    request = ReadRequest(ledger_id=ledger_id, first_entry=entry_id, last_entry=entry_id)
    reply = await bookie.read(request)
    return reply.missing[0].status if reply.missing else Status.OK


async def crash(bookie: Bookie) -> None:
    """As SIGKILL: nothing is written out."""
    for journal in bookie._journals:
        await journal.stop()
    if bookie._checkpoints is not None:
        bookie._checkpoints.cancel()
    bookie.storage.close()


def flip_in_first_group(directory: Path) -> None:
    """Damage a synced record in the middle of the journal; later groups stay valid."""
    (file,) = sorted((directory / "j").glob("*.txn"))[-1:]
    data = bytearray(file.read_bytes())
    at = data.index(b"payload-zero")
    data[at] ^= 0xFF
    file.write_bytes(data)


async def test_a_journal_damaged_in_the_middle_never_becomes_absence(tmp_path: Path) -> None:
    store = MemoryStore()
    await initialize(store, ROOT, random=Random(0))
    ledgers = LedgerStore(store, ROOT, random=Random(0))
    ids = {}
    places = {"open": "b0:1", "closed": "b0:1", "forgotten": "b0:1", "other": "b9:1"}
    for name, ensemble in places.items():
        metadata = LedgerMetadata(
            ensemble_size=1, write_quorum=1, ack_quorum=1, fragments=(Fragment(0, (ensemble,)),)
        )
        metadata = metadata.closed(0, 12) if name in {"closed", "forgotten"} else metadata
        ids[name], _ = await ledgers.create(metadata)
    bookie = await start_bookie(tmp_path)
    assert await add(bookie, ids["open"], b"payload-zero") is Status.OK
    assert await add(bookie, ids["closed"], b"payload-one") is Status.OK
    await crash(bookie)
    flip_in_first_group(tmp_path)

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
    assert await add(bookie, ids["open"], b"late", 1) is Status.FENCED
    # Sent before somebody closed it, this add must not make an ack quorum now.
    assert await add(bookie, ids["forgotten"], b"late", 0) is Status.FENCED
    assert await add(bookie, 4242, b"new ledger") is Status.OK
    await bookie.stop()

    again = open_files(tmp_path)
    assert again.contents.ledgers[ids["open"]].is_limbo
    assert again.contents.ledgers[ids["open"]].is_fenced
    assert again.contents.ledgers[ids["closed"]].is_fenced
    assert again.contents.ledgers[ids["closed"]].is_limbo
    again.close()


async def test_a_torn_tail_is_dropped_and_what_was_acknowledged_stays(tmp_path: Path) -> None:
    bookie = await start_bookie(tmp_path)
    assert await add(bookie, 7, b"payload-zero") is Status.OK
    assert await add(bookie, 7, b"x" * 3000, 1) is Status.OK
    await crash(bookie)
    (file,) = sorted((tmp_path / "j").glob("*.txn"))[-1:]
    data = bytearray(file.read_bytes())
    at = data.index(b"x" * 3000) + 1000
    at -= at % 512
    data[at : at + 512] = bytes(512)  # one sector of the last group never reached the disk
    file.write_bytes(data)

    bookie = await start_bookie(tmp_path)
    storage = bookie.storage

    assert not storage.contents.is_damaged
    assert storage.recovery.groups_torn == 1
    assert storage.recovery.bytes_torn >= 3000
    assert await status_of(bookie, 7, 0) is Status.OK
    assert await status_of(bookie, 7, 1) is Status.NO_ENTRY
    await bookie.stop()


async def test_reads_wait_for_adds_on_their_way_to_the_disk(tmp_path: Path) -> None:
    bookie = await start_bookie(tmp_path)
    adding = asyncio.ensure_future(add(bookie, 7, b"payload-zero"))
    await asyncio.sleep(0)

    assert await status_of(bookie, 7, 0) is Status.OK
    assert await adding is Status.OK
    await bookie.stop()


async def test_the_same_entry_again_is_fine_and_another_one_is_a_conflict(tmp_path: Path) -> None:
    bookie = await start_bookie(tmp_path)
    assert await add(bookie, 7, b"payload-zero") is Status.OK

    assert await add(bookie, 7, b"payload-zero") is Status.OK
    assert await add(bookie, 7, b"payload-evil") is Status.CONFLICT
    await bookie.stop()
    bookie = await start_bookie(tmp_path)
    assert await add(bookie, 7, b"payload-zero") is Status.OK  # compared with the entry log
    assert await add(bookie, 7, b"payload-evil") is Status.CONFLICT
    await bookie.stop()


async def test_a_failed_fsync_answers_unknown_and_stops_the_bookie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bookie = await start_bookie(tmp_path)

    def fail(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("bookie_server.storage.disk.real_files.os.fdatasync", fail)
    status = await add(bookie, 7, b"payload-zero")

    assert status is Status.UNKNOWN
    assert bookie.failed.done()
    monkeypatch.undo()
    await crash(bookie)


async def test_an_emptied_bookie_denies_nothing_of_the_ledgers_that_name_it(tmp_path: Path) -> None:
    """Issue 10: ``put_ledgers_in_limbo`` ran for damaged directories only, and an empty one denied."""

    # given a ledger that names this bookie, and one that does not
    store = MemoryStore()
    await initialize(store, ROOT, random=Random(0))
    ledgers = LedgerStore(store, ROOT, random=Random(0))
    ids = []
    for ensemble in ("b0:1", "b9:1"):
        ledger_id, _ = await ledgers.create(
            LedgerMetadata(
                ensemble_size=1, write_quorum=1, ack_quorum=1, fragments=(Fragment(0, (ensemble,)),)
            )
        )
        ids.append(ledger_id)

    # when it starts on empty directories, the metadata not asked yet
    storage = open_files(tmp_path)
    bookie = Bookie(storage, small_settings(tmp_path))

    # then it denies nothing; asked, it denies only what never was its own
    assert await status_of(bookie, 999, 0) is Status.UNKNOWN
    await put_ledgers_in_limbo(storage, store, ROOT, "b0:1")
    await bookie.start()
    assert await status_of(bookie, ids[0], 0) is Status.UNKNOWN
    assert await status_of(bookie, ids[1], 0) is Status.NO_LEDGER
    assert await add(bookie, ids[0], b"late") is Status.FENCED
    await bookie.stop()
