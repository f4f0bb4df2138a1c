"""Memory for large messages is used again, not fetched from the kernel for each."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

from tests.patience import seconds

_SCRIPT = """
import resource
from bookie_server.carrier.bodies import new_body

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

MIB = bytes(1024 * 1024)
for round in range(20):
    if round == 10:
        before = faults()
    bodies = [new_body(len(MIB)) for _ in range(4)]
    for body in bodies:
        body[:] = MIB
    del body, bodies
print(faults() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's allocator is what is taught")
def test_a_reader_of_large_messages_takes_no_fresh_pages() -> None:
    """Of four MiB at a time every page was a new one: 1,024 faults a round, a third of a batch read's time."""
    asked = [sys.executable, "-c", _SCRIPT]
    found = subprocess.run(
        asked, check=True, capture_output=True, text=True, timeout=seconds(60)
    ).stdout
    assert int(found) < 1_024, "ten rounds"
