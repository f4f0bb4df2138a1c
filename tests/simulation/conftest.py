"""What every test of a simulation shares."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Thousands of injected faults are not worth a warning each."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
