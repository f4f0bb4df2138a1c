"""How a bookie's process ends: when it is told to, or when it cannot go on, whatever hangs.

A disk that hangs keeps threads waiting, and at times the event loop with them. So a signal is heard without
the loop, a thread that needs nothing of Python's sees to the end in time, and where memory cannot be trusted nothing is waited for.
"""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import os
import signal
import sys
from contextlib import suppress
from typing import NoReturn

from bookie_server.storage.disk.errors import StorageFailedError, StorageRefusedError

_STOP_WITHIN_S = 30.0
"""Behind the drain: a last checkpoint is written, and everything is closed."""
_LOGGER = logging.getLogger(__name__)


def stop_on_signals(stopping: asyncio.Event, drain_timeout_s: float) -> None:
    """Set the event at the first SIGTERM or SIGINT; end the process at the second, or when it should have ended.

    For the main thread, on its event loop.
    """
    loop = asyncio.get_running_loop()
    # There may be no descriptor left when it is needed.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    is_told = False

    def on_signal(*_: object) -> None:
        # It may interrupt anything, and so waits for nothing: not for a lock, and the log has some.
        nonlocal is_told
        if is_told:
            os._exit(1)
        is_told = True
        with suppress(RuntimeError):  # the loop is closed: it is about to end
            loop.call_soon_threadsafe(stopping.set)
        _end_within(drain_timeout_s + _STOP_WITHIN_S, nowhere)

    # Not the loop's own handlers: they are called by a loop that runs.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)


def end_in_time() -> None:
    """Nothing is left to do but to close: see that the process ends, though a thread of its own may not."""
    with suppress(OSError):
        _end_within(_STOP_WITHIN_S, os.open(os.devnull, os.O_WRONLY))


def end_failed(failed: asyncio.Future[Exception]) -> NoReturn:
    """End the process of a bookie that has failed, at once: it is to acknowledge nothing more."""
    error = failed.result()
    # A disk's error and a later start under its id need no traceback; anything else is a
    # defect, to be found by one.
    is_expected = isinstance(error, (StorageFailedError, StorageRefusedError))
    _LOGGER.error("bookie failed. detail=%r", error, exc_info=None if is_expected else error)
    # Memory and disk may disagree, so not even a checkpoint is written.
    end_process(1)


def end_process(code: int) -> NoReturn:
    """An ordinary exit waits for worker threads, and one of them may hang in a write to a failed disk."""
    try:
        logging.shutdown()
        sys.stdout.flush()
    finally:
        os._exit(code)


def _end_within(seconds: float, nowhere: int) -> None:
    # Its thread is none of Python's, so nothing that hangs, and no lock, can keep it; what it would say might.
    with suppress(RuntimeError):  # no thread is to be had
        faulthandler.dump_traceback_later(seconds, exit=True, file=nowhere)
