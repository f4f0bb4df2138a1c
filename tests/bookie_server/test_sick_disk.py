"""A disk that hangs: what asks it keeps no more of the process waiting than itself."""

from __future__ import annotations

import asyncio
import shutil
import threading
from pathlib import Path

import pytest

from bookie_server.serving.service import BookieService
from bookie_server.wire.messages import BookieInfo
from bookie_server.workers import ThreadWorkers
from tests.doubles.storage import running_bookie
from tests.patience import seconds


async def test_many_who_ask_how_much_is_free_take_one_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six took all that the process has for look-ups of names, for its stop, and for its sessions."""
    asked, is_well = [0], threading.Event()
    disk_usage = shutil.disk_usage

    def hang(directory: str) -> object:
        asked[0] += 1
        is_well.wait(seconds(60))
        return disk_usage(directory)

    monkeypatch.setattr(shutil, "disk_usage", hang)
    async with running_bookie(tmp_path) as bookie:
        service = BookieService(bookie, BookieInfo("b:1"), str(tmp_path))
        for _ in range(100):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.001):
                    await service.disk_usage()
        waiting = asyncio.create_task(service.disk_usage())
        assert await asyncio.to_thread(lambda: asked[0]) == 1

        is_well.set()

        assert (await waiting).total == disk_usage(tmp_path).total
        assert (await service.disk_usage()).total == disk_usage(tmp_path).total
    assert asked[0] == 2


async def test_a_read_that_hangs_keeps_no_loop_waiting_at_the_end() -> None:
    """Signals, and whatever else is left to do, were not heard any more."""
    workers, is_well = ThreadWorkers(1), threading.Event()
    reading = workers.read(lambda: is_well.wait(seconds(60)))
    finishing = asyncio.create_task(workers.finish(None))
    async with asyncio.timeout(seconds(30)):
        await asyncio.sleep(0.1)
    assert not finishing.done()

    is_well.set()

    await finishing
    assert await reading
