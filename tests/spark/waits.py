"""Waits for what happens in processes of others: never for a time, but with an end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

from tests.patience import Deadline

WAIT_TIMEOUT_S = 240.0
"""What has not happened by then never will."""
POLL_INTERVAL_S = 0.05


def wait_until(
    is_so: Callable[[], object],
    what: str,
    has_failed: Callable[[], str] = lambda: "",
    timeout_s: float = WAIT_TIMEOUT_S,
) -> None:
    """Return once it is so.

    Raises:
        TimeoutError: it was not in time, or never will be: ``has_failed`` says why.
    """
    deadline = Deadline(timeout_s)
    while not is_so():
        if (why := has_failed()) or deadline.has_passed:
            raise TimeoutError(f"waited in vain for {what}: {why}")
        with suppress(InterruptedError):
            threading.Event().wait(POLL_INTERVAL_S)
