"""Fixtures that several tests of the bookie want."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.doubles.secured_bookie import Secured, serving


@pytest.fixture
async def secured(tmp_path: Path) -> AsyncIterator[Secured]:
    async with serving(tmp_path) as secured:
        yield secured
