"""A bookie that speaks Apache's protocol, of which no room is held and nothing is complained about at the end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bookie_server.wire.limits import FRAME_SIZE_MAX
from tests.doubles.rpc_peers import ServedRpc, serving_rpc
from tests.doubles.served_sockets import complaints_of
from tests.doubles.waits import until


@pytest.fixture
async def served(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> AsyncIterator[ServedRpc]:
    async with serving_rpc(tmp_path, adds_in_progress_bytes_max=FRAME_SIZE_MAX) as served:
        yield served
        await until(lambda: not served.used_bytes)
    assert complaints_of(caplog) == []
