"""The examples run as they stand and print what they promise."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.slow]

EXPECTED = {
    "append_and_read.py": "4 go",
    "fence_and_recover.py": "the old writer is told: BK_FENCED",
    "log_take_over.py": "the first writer is told: BK_FENCED\n0 10 EUR\n1 20 EUR\n2 30 EUR\n",
    "spark_batch.py": "|  0|  143|",
}


def test_no_example_is_left_out(repository: Path) -> None:
    assert {path.name for path in (repository / "examples").glob("*.py")} == set(EXPECTED)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.spark] if "spark" in n else []) for n in EXPECTED]
)
def test_an_example_prints_what_it_promises(name: str, repository: Path, tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-W", "ignore", str(repository / "examples" / name)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(repository)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert run.returncode == 0, run.stderr
    assert EXPECTED[name] in run.stdout
