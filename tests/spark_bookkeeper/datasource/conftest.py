"""A fake cluster per test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spark_bookkeeper.datasource.write import upkeep
from tests.spark_bookkeeper.datasource.formats import MirroredSpark
from tests.spark_bookkeeper.datasource.world import FakeSpark


@pytest.fixture
def world(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeSpark]:
    """With the mark ``EVERY_FORMAT`` once for each payload format."""
    # Fake logs of all tests have one id: each test begins as a process that collected nothing yet.
    monkeypatch.setattr(upkeep, "_last_s", {})
    payload_format = getattr(request, "param", None)
    with FakeSpark() if payload_format is None else MirroredSpark(payload_format) as made:
        yield made
