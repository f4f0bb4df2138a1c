"""What every test shares: nothing of the domain, only where the repository is and who is who."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

# A loaded machine is no defect, and what CI runs is the same every time; the long suite looks for
# what nobody has seen yet (`--hypothesis-profile=fresh`).
settings.register_profile("steady", deadline=None, derandomize=True)
settings.register_profile("fresh", deadline=None, print_blob=True)
settings.load_profile("steady")

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the clone under test."""
    return REPOSITORY
