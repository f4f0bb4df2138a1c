"""Whatever ends a task the bookie cannot do without ends the bookie: it never lives on half dead."""

from __future__ import annotations

import asyncio
from pathlib import Path
from unittest.mock import AsyncMock, Mock

import pytest

from bookie_server import server
from bookie_server.registrar import Registrar
from bookie_server.space.watch import SpaceWatch
from bookie_server.storage.checkpoint import Checkpoints
from bookie_server.storage.contents import Contents
from bookie_server.storage.journal.journal import Journal
from bookie_server.storage.journal.journal_files import JournalFiles
from bookie_server.wire.messages import Status
from bookkeeper_metadata.errors import MetadataUnavailableError
from bookkeeper_metadata.foundation.tasks import end_tasks
from tests.doubles.records import section
from tests.doubles.storage import running_bookie
from tests.patience import seconds


class PlantedError(Exception):
    """A defect: nothing in the product expects it."""


def fail(*_: object) -> None:
    raise PlantedError


CRITICAL: dict[str, tuple[type, str]] = {
    "journal": (Journal, "_write"),
    "prepare": (JournalFiles, "prepare"),
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
    async with running_bookie(tmp_path, checkpoint_interval_ms=1_000) as bookie:
        monkeypatch.setattr(*CRITICAL[task], fail)
        monkeypatch.setattr(Journal, "wants_preparing", True)
        answers: list[Status] = []

        bookie.add(section([b"payload"]), answers.append)

        async with asyncio.timeout(seconds(60)):
            assert isinstance(await bookie.failed, PlantedError)
        monkeypatch.undo()


async def test_a_checkpoint_of_a_full_cache_that_cannot_be_ended_stops_the_bookie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop was woken for another one, which could not begin, and again, and nobody else had a turn."""
    settings = {"checkpoint_interval_ms": 3_600_000, "write_cache_size_bytes": 4096}
    async with running_bookie(tmp_path, **settings) as bookie:
        monkeypatch.setattr(Contents, "finish_checkpoint", fail)
        answers: list[Status] = []
        bookie.add(section([bytes(8192)]), answers.append)
        async with asyncio.timeout(seconds(60)):
            assert isinstance(await bookie.failed, PlantedError)
        monkeypatch.undo()


@pytest.mark.parametrize(
    "task",
    ["looks at disks", "room for a start", "registers", "keeps it", "collects garbage", "scrubs"],
)
async def test_a_defect_in_what_keeps_a_bookie_registered_ends_it(
    task: str, tmp_path: Path
) -> None:
    """Without looks at its disks it would fill them; without a registration nobody finds it."""

    async def never() -> None:
        await asyncio.Event().wait()

    def act(name: str) -> AsyncMock:
        return AsyncMock(side_effect=PlantedError if task == name else never)

    registrar, watch = Mock(Registrar), Mock(SpaceWatch)
    watch.run, watch.wait_for_start = act("looks at disks"), act("room for a start")
    registrar.start = AsyncMock(side_effect=PlantedError if task == "registers" else None)
    registrar.keeper = asyncio.ensure_future(act("keeps it")())
    upkeep = {name: act(name) for name in ("collects garbage", "scrubs")}
    stopped = asyncio.create_task(never())
    running: list[asyncio.Task[None]] = []
    async with running_bookie(tmp_path) as bookie:
        bookie.space.is_sealed = True

        with pytest.raises(PlantedError):
            async with asyncio.timeout(seconds(60)):
                await server._stay_registered(
                    registrar, watch, bookie, upkeep, stopped, running=running
                )
        bookie.space.is_sealed = False
    await end_tasks([stopped, registrar.keeper, *running])


async def test_of_several_errors_the_first_ends_the_bookie(tmp_path: Path) -> None:
    """The others follow from it: a journal that failed refuses whatever comes next."""
    first, second = PlantedError("first"), PlantedError("second")
    async with running_bookie(tmp_path) as bookie:
        bookie.fail(first)
        bookie.fail(second)

        assert bookie.failed.result() is first


@pytest.mark.parametrize(
    "stop",
    [MetadataUnavailableError("zk:1", "planted"), asyncio.Event().wait],
    ids=["away", "silent"],
)
async def test_a_registration_that_cannot_be_withdrawn_does_not_keep_a_bookie(
    stop: object, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It waited 17 s, and ended without having answered what it had admitted."""
    monkeypatch.setattr(server, "_UNREGISTER_WITHIN_S", 0.1)
    registrar = Mock(Registrar)
    registrar.stop = AsyncMock(side_effect=stop)
    await server._unregister(registrar)
    assert "the registration stays until its session ends" in caplog.text
