"""A fake cluster per test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.spark_bookkeeper.datasource.fakes import World


@pytest.fixture
def world() -> Iterator[World]:
    with World() as made:
        yield made
