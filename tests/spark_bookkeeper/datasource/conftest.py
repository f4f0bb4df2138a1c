"""A fake cluster per test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spark_bookkeeper.datasource.write import upkeep
from tests.spark_bookkeeper.datasource.world import FakeSpark


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeSpark]:
    # Fake logs of all tests have one id: each test begins as a process that collected nothing yet.
    monkeypatch.setattr(upkeep, "_last_s", {})
    with FakeSpark() as made:
        yield made
