"""Claim of the directories: looked at, locked, looked at again, and marked as this bookie's.

Nothing is created before the directories were found fit, so a start that is refused leaves them as
they were. What is found under the locks is what counts: another process may have run in between.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from bookie_server.settings import StorageSettings
from bookie_server.storage.disk.files import FileSystem
from bookie_server.storage.disk.locks import lock_directories
from bookie_server.storage.identity.cookie_file import write_cookie, write_start
from bookie_server.storage.identity.doubt import mark_doubtful
from bookie_server.storage.identity.inspection import inspect
from bookie_server.storage.identity.start_plan import Applicant, StartPlan, plan_start


@dataclass(frozen=True, slots=True)
class Claim:
    """Directories that are this process's; the start is on the disks, not yet in the metadata."""

    plan: StartPlan
    locks: ExitStack
    """Closing it gives the directories up; ``open_storage`` takes it over."""


def claim_directories(
    files: FileSystem, settings: StorageSettings, applicant: Applicant, new_id: Callable[[], str]
) -> Claim:
    """Take the directories for ``applicant`` and count its start in each of them; blocks meanwhile.

    Raises:
        StorageRefusedError: they are not fit for it; nothing was changed.
        BlockingIOError: another process has one of them.
        OSError: a directory cannot be read, made or written to.
    """
    plan_start(inspect(files, settings), applicant, new_id)
    with ExitStack() as stack:
        locks = stack.enter_context(lock_directories(files, settings.directories))
        plan = plan_start(inspect(files, settings), applicant, new_id)
        # Before a cookie makes their directories look like any others.
        for path in plan.doubtful:
            mark_doubtful(files, path)
            # A crash must not leave it a cookie beside the counter that an old copy brought along:
            # that would be refused for ever, whoever says that it is to be kept.
            write_start(files, path, plan.start)
        for path, cookie in plan.cookies:
            write_cookie(files, path, cookie)
        # Behind the last cookie: a counter says that the set is complete.
        for path in settings.directories:
            write_start(files, path, plan.start)
        stack.pop_all()
        return Claim(plan, locks)
