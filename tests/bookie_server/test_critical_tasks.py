"""Whatever ends a task the bookie cannot do without ends the bookie: it never lives on half dead."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bookie_server.storage.checkpoint import Checkpoints
from bookie_server.storage.contents import Contents
from bookie_server.storage.journal.journal import Journal
from bookie_server.wire.messages import Status
from tests.doubles.records import section
from tests.doubles.storage import running_bookie
from tests.patience import seconds


class PlantedError(Exception):
    """A defect: nothing in the product expects it."""


def fail(*_: object) -> None:
    raise PlantedError


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
    async with running_bookie(tmp_path, checkpoint_interval_ms=1_000) as bookie:
        monkeypatch.setattr(*CRITICAL[task], fail)
        answers: list[Status] = []

        bookie.add(section([b"payload"]), answers.append)

        async with asyncio.timeout(seconds(60)):
            assert isinstance(await bookie.failed, PlantedError)
        monkeypatch.undo()
