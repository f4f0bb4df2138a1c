"""Claim of the directories: looked at, locked, looked at again, and marked as this bookie's.

Nothing is created before the directories were found fit, so a start that is refused leaves them as
they were. What is found under the locks is what counts, on the disks and in the metadata: another process may
have run in between.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from bookie_server.settings import StorageSettings
from bookie_server.storage.disk.files import FileSystem
from bookie_server.storage.disk.locks import lock_directories
from bookie_server.storage.identity.cookie_file import write_cookie, write_start
from bookie_server.storage.identity.doubt import mark_doubtful
from bookie_server.storage.identity.inspection import inspect
from bookie_server.storage.identity.start_plan import Applicant, StartPlan, plan_start


def lock_if_fit(
    files: FileSystem, settings: StorageSettings, applicant: Applicant, new_id: Callable[[], str]
) -> ExitStack:
    """Take the directories if ``applicant`` may start on them; closing what is returned gives them up. Blocks meanwhile.

    Raises:
        StorageRefusedError: they are not fit for it; nothing was changed.
        BlockingIOError: another process has one of them.
        OSError: a directory cannot be read or made.
    """
    plan_start(inspect(files, settings), applicant, new_id)
    return lock_directories(files, settings.directories)


def mark_as_own(
    files: FileSystem, settings: StorageSettings, applicant: Applicant, new_id: Callable[[], str]
) -> StartPlan:
    """Count a start of ``applicant``, as it is known since the locks are held, in each of the directories; blocks meanwhile.

    Raises:
        StorageRefusedError: they are not fit for it any more; nothing was changed.
        OSError: a directory cannot be read or written to.
    """
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
    return plan
