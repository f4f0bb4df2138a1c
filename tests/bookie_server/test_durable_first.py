"""What the simulations take for granted of a bookie, at the real one, its threads and files included."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from bookie_server.bookie import Bookie
from bookie_server.wire.messages import ReadLacReply, ReadLacRequest, ReadRequest, Status
from tests.doubles import records
from tests.doubles.records import KEY, section
from tests.doubles.storage import running_bookie
from tests.doubles.waits import pass_turns, until


class HeldSync:
    """The disk: a sync begins, and ends when the test says so."""

    def __init__(self) -> None:
        self.begun = 0
        self._may_end = threading.Event()
        self._may_end.set()

    def __call__(self, descriptor: int) -> None:
        self.begun += 1
        self._may_end.wait()
        os.fsync(descriptor)

    def hold(self) -> None:
        self.begun = 0
        self._may_end.clear()

    def release(self) -> None:
        self._may_end.set()


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[HeldSync]:
    held = HeldSync()
    monkeypatch.setattr("bookie_server.storage.disk.real_files.os.fdatasync", held)
    yield held
    held.release()


def read(ledger_id: int, entry_id: int, *, is_fencing: bool = False) -> ReadRequest:
    key = KEY if is_fencing else b""
    return ReadRequest(
        ledger_id=ledger_id,
        first_entry=entry_id,
        last_entry=entry_id,
        is_fencing=is_fencing,
        master_key=key,
    )


def fencing(ledger_id: int) -> ReadLacRequest:
    return ReadLacRequest(ledger_id, is_fencing=True, master_key=KEY)


async def test_nothing_that_rests_on_a_sync_is_answered_before_it(
    tmp_path: Path, disk: HeldSync
) -> None:
    """Adds and their repeats, fences and theirs, what a fencing request finds, absence included."""
    async with running_bookie(tmp_path) as bookie:
        assert await records.add(bookie, section([b"0"])) is Status.OK
        disk.hold()
        add = asyncio.ensure_future(records.add(bookie, section([b"1"], 1)))
        await until(lambda: disk.begun > 0)
        waiting: dict[str, asyncio.Future[object]] = {
            name: asyncio.ensure_future(asked)
            for name, asked in {
                "the add again": records.add(bookie, section([b"1"], 1)),
                "a read of it": bookie.read(read(7, 1)),
                "a fence": bookie.fence(7, KEY),
                "the fence again": bookie.fence(7, KEY),
                "a fencing denial": bookie.read(read(7, 9, is_fencing=True)),
                "a fencing read of what is there": bookie.read(read(7, 0, is_fencing=True)),
                "a fencing LAC read": bookie.read_lac(fencing(7)),
                "a fence of a ledger nobody wrote": bookie.fence(8, KEY),
                "a fencing denial there": bookie.read(read(8, 0, is_fencing=True)),
                "a fencing LAC read there": bookie.read_lac(fencing(8)),
            }.items()
        }
        await pass_turns(100)

        assert [name for name, asked in waiting.items() if asked.done()] == []
        assert not add.done()
        # A writer's add is refused at once, though: to refuse takes no disk.
        assert await records.add(bookie, section([b"2"], 2)) is Status.FENCED
        disk.release()
        assert await add is Status.OK
        answers = dict(zip(waiting, await asyncio.gather(*waiting.values()), strict=True))

    for name in ("the add again", "a fence", "the fence again", "a fence of a ledger nobody wrote"):
        assert answers[name] is Status.OK
    last = answers["a fencing LAC read"]
    assert isinstance(last, ReadLacReply)
    assert last.last_entry == records.records([b"1"], 1)


def held_by(bookie: Bookie) -> set[int]:
    return {each for ids in bookie.storage.contents.entry_ids(7) for each in ids}


@pytest.mark.parametrize("seed", range(10))
async def test_what_is_acknowledged_was_there_when_the_fence_was_answered(
    tmp_path: Path, seed: int
) -> None:
    """Fence and admission are one step: no add slips in behind what the recovery was shown."""
    random, acknowledged = Random(seed), set[int]()

    async def add(bookie: Bookie, entry_id: int) -> None:
        await pass_turns(random.randrange(40))
        if await records.add(bookie, section([b"x"], entry_id)) is Status.OK:
            acknowledged.add(entry_id)

    async with running_bookie(tmp_path) as bookie:
        adds = [asyncio.ensure_future(add(bookie, entry_id)) for entry_id in range(30)]
        await pass_turns(random.randrange(40))
        assert (await bookie.read_lac(fencing(7))).status in (Status.OK, Status.NO_LEDGER)
        shown = held_by(bookie)
        await asyncio.gather(*adds)

        assert acknowledged <= shown == held_by(bookie)


async def test_a_fence_and_the_entries_before_it_survive_a_start(tmp_path: Path) -> None:
    async with running_bookie(tmp_path) as bookie:
        assert await records.add(bookie, section([b"0"])) is Status.OK
        for ledger_id in (7, 8):
            assert await bookie.fence(ledger_id, KEY) is Status.OK

    for _ in range(2):
        async with running_bookie(tmp_path) as bookie:
            assert not (await bookie.read(read(7, 0))).missing
            for ledger_id in (7, 8):
                late = section([b"1"], 1, ledger_id=ledger_id)
                assert await records.add(bookie, late) is Status.FENCED
