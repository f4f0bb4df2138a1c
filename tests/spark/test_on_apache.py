"""Spark and logs on three of Apache's bookies: the tests of our own bookies, in a process that finds those instead."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from benchmarks.peers.artifacts import PeerUnavailableError, cache_directory, prepare
from tests.interop.java_client import SOURCE
from tests.patience import seconds
from tests.sources import REPOSITORY

pytestmark = [pytest.mark.spark, pytest.mark.full, pytest.mark.timeout(3600)]

SUITES = (
    "test_read.py",
    "test_write.py",
    "test_stream_read.py",
    "test_stream_write.py",
    "test_stream_tables.py",
    "test_raw_logs.py",
    "test_optimize.py",
    "test_sql.py",
)


@pytest.mark.parametrize("names", [SUITES, ("kills",)], ids=["features", "kills"])
def test_what_spark_does_on_our_bookies_it_does_on_apaches(names: tuple[str, ...]) -> None:
    """Of the kill matrix the half that ``make test`` runs."""
    try:
        prepare(cache_directory(), SOURCE)
    except PeerUnavailableError as error:
        pytest.skip(f"Apache BookKeeper cannot be had: {error}")
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not full", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, *(str(REPOSITORY / "tests" / "spark" / name) for name in names)],
        cwd=REPOSITORY,
        env=os.environ | {"BOOKKEEPER_TESTS_ON": "apache"},
        capture_output=True,
        text=True,
        timeout=seconds(1_500),
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5_000:]
    # Neither of them may have been left out.
    assert " passed" in done.stdout
    assert " skipped" not in done.stdout
