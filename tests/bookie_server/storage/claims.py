"""Claims of a bookie's directories on a simulated disk, for the tests of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count

from bookie_server.settings import StorageSettings
from bookie_server.storage.identity.claim import lock_if_fit, mark_as_own
from bookie_server.storage.identity.cookie_file import read_cookie, read_start, write_start
from bookie_server.storage.identity.start_plan import Applicant, StartPlan
from tests.simulation.kit.files import SimFileSystem

NEW = Applicant(bookie_id="b:1", cluster_id="c", has_cookie=False, starts=0, start_id="")
ALL = StorageSettings(journal_directories=("/j0", "/j1"), ledger_directories=("/l0", "/l1"))


def known(starts: int, **changes: object) -> Applicant:
    """The bookie as the metadata knows it after so many starts; start n has the id ``s<n>``."""
    start_id = f"s{starts}"
    return replace(NEW, has_cookie=True, starts=starts, start_id=start_id, **changes)  # type: ignore[arg-type]


class Ids:
    """Names that nobody has drawn before; the last one of a claim names the start."""

    def __init__(self) -> None:
        self._numbers = count()

    def __call__(self) -> str:
        return f"id{next(self._numbers)}"


NEXT_ID = Ids()


def claim(
    files: SimFileSystem, applicant: Applicant = NEW, settings: StorageSettings = ALL
) -> StartPlan:
    """A start that goes no further than the claim; its locks are given up."""
    with lock_if_fit(files, settings, applicant, NEXT_ID):
        plan = mark_as_own(files, settings, applicant, NEXT_ID)
    # As the metadata would know it from now on.
    start = plan.start
    for path in settings.directories:
        write_start(files, path, replace(start, start_id=f"s{start.number}"))
    return plan


def number_of(files: SimFileSystem, directory: str) -> int:
    return read_start(files, directory).number


def started(times: int = 1) -> SimFileSystem:
    """The disks of a bookie that has started so often; each has records."""
    files = SimFileSystem()
    claim(files)
    for starts in range(1, times):
        claim(files, known(starts))
    for path in ("/l0/index", "/l1/index", f"/j0/{1:016x}.txn", f"/j1/{1:016x}.txn"):
        files.create(path).close()
    return files


def empty(files: SimFileSystem, directory: str) -> None:
    """A new disk in the place of the old one."""
    files.empty(directory)


def put_back(files: SimFileSystem, old: SimFileSystem, source: str, target: str) -> None:
    """What ``source`` was in ``old`` stands at ``target`` now."""
    files.put(target, old, source)


def own_ids(files: SimFileSystem, directories: Sequence[str] = ALL.directories) -> list[str]:
    return [read_cookie(files, each).directory_id for each in directories]
