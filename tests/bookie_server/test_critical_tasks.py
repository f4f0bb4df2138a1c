"""Whatever ends a task the bookie cannot do without ends the bookie: it never lives on half dead."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bookie_server.bookie import Bookie
from bookie_server.settings import BookieSettings
from bookie_server.storage.checkpoint import Checkpoints
from bookie_server.storage.contents import Contents
from bookie_server.storage.disk.real_files import RealFileSystem
from bookie_server.storage.journal.journal import Journal
from bookie_server.storage.opening import open_storage
from bookie_server.wire.digest import Crc32cDigest
from bookie_server.wire.messages import Section, Status
from bookie_server.wire.record import encode_records, parse_run
from bookkeeper_metadata.model import DigestType
from tests.doubles.storage import answer_new


class PlantedError(Exception):
    """A defect: nothing in the product expects it."""


def fail(*_: object) -> None:
    raise PlantedError


@asynccontextmanager
async def started(place: Path) -> AsyncIterator[Bookie]:
    settings = BookieSettings(
        journal_directories=(str(place / "journal"),),
        ledger_directories=(str(place / "ledgers"),),
        journal_zero_chunk_bytes=64 * 1024,
        checkpoint_interval_ms=1_000,
    )
    storage = open_storage(
        RealFileSystem(), settings.storage, instance_id=bytes(16), clock_ms=lambda: 1
    )
    bookie = Bookie(answer_new(storage), settings)
    await bookie.start()
    try:
        yield bookie
    finally:
        await bookie.stop()


def send_add(bookie: Bookie, answers: list[Status]) -> None:
    parts = encode_records(
        Crc32cDigest(), 7, 0, [b"payload"], last_add_confirmed=-1, length_before=0
    )
    run = parse_run(b"".join(parts))
    bookie.add(Section(7, b"k" * 20, False, DigestType.CRC32C, run), answers.append)


CRITICAL: dict[str, tuple[type, str]] = {
    "journal": (Journal, "_write"),
    "prepare": (Journal, "_zero_ahead"),
    "apply": (Contents, "apply"),
    "begin": (Contents, "begin_checkpoint"),
    "write": (Checkpoints, "write"),
    "finish": (Contents, "finish_checkpoint"),
}


@pytest.mark.slow
@pytest.mark.parametrize("task", CRITICAL)
async def test_a_defect_in_a_critical_task_stops_the_bookie(
    task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only ``StorageFailedError`` did; after anything else the thread was gone and adds hung."""
    async with started(tmp_path) as bookie:
        monkeypatch.setattr(*CRITICAL[task], fail)
        answers: list[Status] = []

        send_add(bookie, answers)

        async with asyncio.timeout(60):
            assert isinstance(await bookie.failed, PlantedError)
        monkeypatch.undo()
