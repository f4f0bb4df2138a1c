"""P10: the longest steps of a bookie's event loop with many ledgers; nobody is answered meanwhile.

Each figure is the CPU time of one step, as the loop takes it, on storage with real files and without
a network. The baseline is the most a step may take, so a ratio above 1 is a step that is too long.
"""

from __future__ import annotations

import asyncio
import gc
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from benchmarks.figures import Figure
from bookie_server.bookie import Bookie
from bookie_server.core.effects import Persist
from bookie_server.core.records import Add, JournalRecord, MasterKey
from bookie_server.journal_thread import take_group
from bookie_server.settings import BookieSettings
from bookie_server.storage.disk.locks import lock_directories
from bookie_server.storage.disk.real_files import RealFileSystem
from bookie_server.storage.engine import Storage
from bookie_server.storage.journal.journal_file import JournalPosition
from bookie_server.storage.opening import open_storage
from bookie_server.wire.digest import Crc32cDigest
from bookie_server.wire.messages import ListRequest
from bookie_server.wire.packaging import encode_records
from bookie_server.wire.record import Run, parse_run

STEP_MS_MAX = 50.0
"""Longest that one step may keep the loop to itself."""
LEDGERS = 20_000
STRIPED_GROUPS = 300_000
"""Of the ledger whose entries are listed: two ids of every three, as E=3, WQ=2 leaves them."""
BOOKIE_GC = 50_000, 20, 100
"""When a bookie collects garbage (``bookie_server/server.py``); elsewhere it would be measured too."""
SMALL = bytes(60)
"""A payload that makes a record of 100 bytes."""
_DIGEST = Crc32cDigest()
_KEY = bytes(20)
T = TypeVar("T")


def loop_steps(_seconds: float) -> list[Figure]:
    """Every step that grows with the number of ledgers or entries."""
    gc.set_threshold(*BOOKIE_GC)
    figures: list[Figure] = []

    def step(what: str, act: Callable[[], T]) -> T:
        begun_s = time.thread_time()
        result = act()
        took_ms = (time.thread_time() - begun_s) * 1000
        figures.append(Figure("P10", what, took_ms, "ms", STEP_MS_MAX, "the longest step"))
        return result

    with _storage() as storage:
        contents = storage.contents
        for round_ in ("first", "second"):
            for ledger_id in range(LEDGERS):
                run = _run(ledger_id, 10 * (round_ == "second"), 1)
                _apply(storage, [MasterKey(ledger_id, _KEY), Add(run)])
            plan = step(f"begin checkpoint, {LEDGERS} ledgers, {round_}", contents.begin_checkpoint)
            assert plan is not None
            result = storage.checkpoints.write(plan)
            finish = _bound(contents.finish_checkpoint, result)
            step(f"finish checkpoint, {LEDGERS} ledgers, {round_}", finish)
    with _storage() as storage:
        for size in (1_000, 1):
            runs = [_run(1 + size, at, size) for at in range(0, 80_000, size)]
            waiting = deque(Persist(0, 1 + size, (Add(run),), ()) for run in runs)
            group = take_group(waiting, BookieSettings().group_bytes_max)
            records = [record for persist in group for record in persist.records]
            step(f"apply a full group, runs of {size}", _bound(_apply, storage, records))
    with _storage() as storage:
        for at in range(0, STRIPED_GROUPS, 300):
            parts = [_run(9, 3 * group, 2).data for group in range(at, at + 300)]
            _apply(storage, [Add(parse_run(b"".join(parts)))])
        storage.checkpoint_now()
        bookie = asyncio.run(_bookie(storage))
        step(
            f"list {2 * STRIPED_GROUPS} striped entries, a page",
            _bound(bookie.list_entries, ListRequest(9)),
        )
    return figures


async def _bookie(storage: Storage) -> Bookie:
    return Bookie(storage, BookieSettings())


def _bound(act: Callable[..., T], *arguments: object) -> Callable[[], T]:
    return lambda: act(*arguments)


def _run(ledger_id: int, first: int, count: int) -> Run:
    parts = encode_records(
        _DIGEST, ledger_id, first, [SMALL] * count, last_add_confirmed=-1, length_before=0
    )
    return parse_run(b"".join(parts))


def _apply(storage: Storage, records: Sequence[JournalRecord]) -> None:
    """Apply durable records, in a group of their own."""
    before = storage.contents.applied[0]
    end = replace(before, offset=before.offset + 1, sequence=before.sequence + 1)
    storage.contents.apply(records, JournalPosition(0, end))


@contextmanager
def _storage() -> Iterator[Storage]:
    with tempfile.TemporaryDirectory() as place:
        settings = BookieSettings(
            journal_directories=(str(Path(place, "j")),),
            ledger_directories=(str(Path(place, "l")),),
        ).storage
        files = RealFileSystem()
        locks = lock_directories(files, settings.directories)
        storage = open_storage(files, settings, locks, instance_id=bytes(16), clock_ms=lambda: 1)
        storage.contents.set_limbo([])
        storage.checkpoint_now()
        yield storage
        storage.close()
