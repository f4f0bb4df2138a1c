"""Memory for large replies is used again, not fetched from the kernel for each."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from tests.patience import seconds

_SCRIPT = """
import resource
import sys
import numpy as np
from bookkeeper_metadata.bookies import BookieRegistry
from spark_bookkeeper.ledger.connections import Connections
from spark_bookkeeper.settings import ClientSettings
from unittest.mock import Mock

if sys.argv[1] == "a client":
    Connections(Mock(BookieRegistry), ClientSettings(), Mock())
size = 1024 * 1024
for round in range(20):
    if round == 10:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    bodies = [np.empty(size, np.uint8) for _ in range(4)]
    for body in bodies:
        body[:] = 1
    del body, bodies
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(who: str) -> int:
    """Of ten rounds of four pieces of a MiB."""
    asked = [sys.executable, "-c", _SCRIPT, who]
    limit_s = seconds(60)
    # Settings of glibc, of which some machines have some, count before what it is taught.
    untold = {k: v for k, v in os.environ.items() if not k.startswith(("MALLOC_", "GLIBC_"))}
    found = subprocess.run(
        asked, check=True, capture_output=True, text=True, timeout=limit_s, env=untold
    )
    return int(found.stdout)


@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="it is glibc's allocator that is taught"
)
def test_a_reader_of_large_replies_takes_no_fresh_pages() -> None:
    """Every page was a new one: 992 faults a round, a quarter of a batch read's time."""
    if faults("nobody") < 5_000:
        pytest.skip("this system gives processes large pages, or its allocator keeps them anyway")
    assert faults("a client") < 500
