"""What every test shares: nothing of the domain, only where the repository is and who is who."""

from __future__ import annotations

from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the clone under test."""
    return REPOSITORY
