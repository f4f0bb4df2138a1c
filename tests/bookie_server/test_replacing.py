"""A damaged copy is said once, and a recovery add replaces it; an undamaged one is never replaced."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from bookie_server.bookie import Bookie
from bookie_server.reads import damage_log
from bookie_server.reads.damage_log import DamageLog
from bookie_server.storage.disk.damage import Damage
from bookie_server.storage.disk.real_files import RealFileSystem
from bookie_server.storage.read_outcome import ReadOutcome
from bookie_server.storage.read_plan import ReadPlan
from bookie_server.wire.digest import HmacDigest, master_key
from bookie_server.wire.messages import ReadRequest, Section, Status
from bookie_server.wire.record import parse_run
from bookkeeper_metadata.model import DigestType
from tests.doubles import records
from tests.doubles.records import section
from tests.doubles.storage import crash, running_bookie, start_bookie

SIZE = 40_000
"""Large enough for a block of its own each."""
ENTRIES = 4
BROKEN = 2


def recovery_of(entry_id: int, fill: bytes = b"x", count: int = 1) -> Section:
    payloads = [fill * SIZE] * count
    return replace(section(payloads, entry_id, length_before=entry_id * SIZE), is_recovery=True)


async def read(bookie: Bookie, entry_id: int) -> bytes | Status:
    """The entry's payload, or why there is none."""
    reply = await bookie.read(ReadRequest(ledger_id=7, first_entry=entry_id, last_entry=entry_id))
    return reply.missing[0].status if reply.missing else bytes(b"".join(reply.chunks))[-SIZE:]


def damage_block(place: Path) -> None:
    (log,) = (place / "l").glob("*.log")
    content = bytearray(log.read_bytes())
    content[64 + BROKEN * len(content) // (ENTRIES + 1)] ^= 1
    log.write_bytes(content)


@pytest.fixture
async def bookie(tmp_path: Path) -> AsyncIterator[Bookie]:
    """Four entries in an entry log, and one of them rotten."""
    async with running_bookie(tmp_path) as before:
        sent = replace(recovery_of(0, count=ENTRIES), is_recovery=False)
        assert await records.add(before, sent) is Status.OK
    damage_block(tmp_path)
    async with running_bookie(tmp_path) as after:
        yield after


async def broken_entry(bookie: Bookie) -> int:
    found = [e for e in range(ENTRIES) if await read(bookie, e) is Status.UNKNOWN]
    assert len(found) == 1, "the damage is one block's"
    return found[0]


async def test_a_damaged_block_is_logged_once_and_counted(
    bookie: Bookie, caplog: pytest.LogCaptureFixture
) -> None:
    assert bookie.damage_log.count == 0
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            await broken_entry(bookie)

    (line,) = [record.getMessage() for record in caplog.records]
    assert (
        "stored block damaged. block of ledger 7: bad checksum, or not the entries of its row"
        in line
    )
    assert bookie.damage_log.count == 1


async def test_a_recovery_add_replaces_a_damaged_copy_for_good(
    bookie: Bookie, tmp_path: Path
) -> None:
    """Recovery was told UNKNOWN: with AQ = WQ and no spare bookie the ledger stayed open."""
    entry_id = await broken_entry(bookie)
    ordinary = replace(recovery_of(entry_id), is_recovery=False)
    assert await records.add(bookie, ordinary) is Status.UNKNOWN

    assert await records.add(bookie, recovery_of(entry_id)) is Status.OK

    assert await read(bookie, entry_id) == b"x" * SIZE
    assert await records.add(bookie, recovery_of(entry_id)) is Status.OK
    assert await records.add(bookie, recovery_of(entry_id, b"y")) is Status.CONFLICT
    await bookie.stop()
    async with running_bookie(tmp_path) as again:
        assert [await read(again, e) for e in range(ENTRIES)] == [b"x" * SIZE] * ENTRIES
        assert again.damage_log.count == 0


async def test_a_read_that_ends_behind_the_replacement_finds_no_damage(
    bookie: Bookie, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The entry was wanted again as long as nobody looked at it, though a good copy had taken its place."""
    entry_id = await broken_entry(bookie)
    has_read, may_end = asyncio.Event(), asyncio.Event()
    execute = bookie._fetcher._execute

    async def end_late(plan: ReadPlan) -> ReadOutcome:
        outcome = await execute(plan)
        has_read.set()
        await may_end.wait()
        return outcome

    with monkeypatch.context() as patch:
        patch.setattr(bookie._fetcher, "_execute", end_late)
        late = asyncio.create_task(read(bookie, entry_id))
        await has_read.wait()
    assert await records.add(bookie, recovery_of(entry_id)) is Status.OK
    assert bookie.verifier.damaged_count == 0
    may_end.set()

    assert await late is Status.UNKNOWN
    assert bookie.verifier.damaged_count == 0


async def test_the_rest_of_a_section_is_compared_and_stored_as_ever(bookie: Bookie) -> None:
    entry_id = await broken_entry(bookie)

    sound = await records.add(bookie, recovery_of(0, b"y", count=ENTRIES))
    assert sound is Status.CONFLICT, "its neighbours are not damaged"
    assert await read(bookie, entry_id) is Status.UNKNOWN, "nothing was replaced"
    assert await records.add(bookie, recovery_of(0, count=ENTRIES + 2)) is Status.OK

    assert [await read(bookie, e) for e in range(ENTRIES + 2)] == [b"x" * SIZE] * (ENTRIES + 2)


@pytest.mark.parametrize("second", [b"x", b"y"])
async def test_of_two_recoveries_at_once_the_second_is_compared_with_the_first(
    bookie: Bookie, second: bytes
) -> None:
    entry_id = await broken_entry(bookie)
    fills = [b"x", second, second]

    answers = await asyncio.gather(
        *(records.add(bookie, recovery_of(entry_id, fill)) for fill in fills)
    )

    kept = await read(bookie, entry_id)
    wanted = [Status.OK if fill * SIZE == kept else Status.CONFLICT for fill in fills]
    assert answers == wanted
    assert Status.OK in answers


async def test_a_copy_that_only_recovery_can_check_is_replaced_too(tmp_path: Path) -> None:
    """No bookie has the key of HMAC's digests; a reader has, and refuses what is wrong."""
    key = master_key(b"secret")
    data = records.records([b"x" * SIZE], digest=HmacDigest(b"secret"))
    sent = replace(section([b"x" * SIZE]), master_key=key, digest_type=DigestType.HMAC)
    sent = replace(sent, run=parse_run(data))
    async with running_bookie(tmp_path) as bookie:
        assert await records.add(bookie, sent) is Status.OK
    (log,) = (tmp_path / "l").glob("*.log")
    content = bytearray(log.read_bytes())
    content[SIZE // 2] ^= 1
    log.write_bytes(content)

    async with running_bookie(tmp_path) as bookie:
        assert await read(bookie, 0) is Status.UNKNOWN
        assert await records.add(bookie, replace(sent, is_recovery=True)) is Status.OK
        assert await read(bookie, 0) == b"x" * SIZE


async def test_for_want_of_descriptors_nothing_is_called_damaged_nor_replaced(
    bookie: Bookie, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(RealFileSystem, "open", fail)

    assert await read(bookie, 0) is Status.UNKNOWN
    assert await records.add(bookie, recovery_of(0, b"y")) is Status.UNKNOWN
    assert bookie.damage_log.count == 0
    monkeypatch.undo()
    assert await read(bookie, 0) == b"x" * SIZE


async def test_a_kill_behind_the_answer_takes_no_replacement_back(tmp_path: Path) -> None:
    async with running_bookie(tmp_path) as before:
        sent = replace(recovery_of(0, count=ENTRIES), is_recovery=False)
        assert await records.add(before, sent) is Status.OK
    damage_block(tmp_path)
    bookie = await start_bookie(tmp_path)
    entry_id = await broken_entry(bookie)
    assert await records.add(bookie, recovery_of(entry_id)) is Status.OK
    await crash(bookie)

    async with running_bookie(tmp_path) as again:
        assert await read(again, entry_id) == b"x" * SIZE


def test_damaged_blocks_beyond_a_bound_are_not_remembered(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(damage_log, "BLOCKS_REMEMBERED_MAX", 2)
    log = DamageLog()

    log.note(Damage("/a", offset, "bad checksum") for offset in (1, 2, 1, 3, 4))

    assert log.count == 2
    assert len(caplog.records) == 3, "two blocks, and that no more are named"
