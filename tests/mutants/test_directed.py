"""Each directed mutant is noticed by the test that is named with it."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache

import pytest

from tests.mutants.directed import DIRECTED
from tests.mutants.page import directed_page
from tests.simulation.kit.kills import PAGE, part_of
from tests.sources import REPOSITORY


@cache
def outcomes() -> dict[str, int]:
    """Pytest's exit code for each mutant; without one under the empty name."""
    command = [sys.executable, "-m", "tests.mutants"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    found: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.slow
def test_without_a_mutant_nothing_fails() -> None:
    assert outcomes()[""] == pytest.ExitCode.OK


@pytest.mark.slow
@pytest.mark.parametrize("name", DIRECTED)
def test_the_mutant_is_noticed(name: str) -> None:
    assert outcomes()[name] == pytest.ExitCode.TESTS_FAILED


def test_the_table_in_the_documents_is_of_these_mutants() -> None:
    assert part_of(PAGE.read_text(encoding="utf-8"), directed_page()) == directed_page()
