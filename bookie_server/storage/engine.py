"""Storage: what a bookie holds in memory, and the journals, checkpoints and files behind it.

Who may call what:

* the *loop thread* owns ``contents``, the state in memory; nothing of it blocks;
* a *journal thread* each calls ``journals[i].write_group``, and the loop then applies the records;
* one *worker* calls ``checkpoints.write``; *any thread* calls ``execute``.

Storage decides nothing about admission, and an absence it reports is evidence only
for a ledger that is not in limbo.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

from bookie_server.storage.blocking import write_checkpoint
from bookie_server.storage.checkpoint import Checkpoints
from bookie_server.storage.contents import Contents
from bookie_server.storage.disk.files import FileSystem
from bookie_server.storage.journal.journal import Journal
from bookie_server.storage.read_blocks import execute_plan
from bookie_server.storage.read_outcome import ReadOutcome
from bookie_server.storage.read_plan import ReadPlan
from bookie_server.storage.recovery import RecoveryReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """See the module. Made by ``open_storage``; owns all files below its directories."""

    files: FileSystem
    contents: Contents
    journals: tuple[Journal, ...]
    checkpoints: Checkpoints
    recovery: RecoveryReport
    """What was found while it was opened."""
    opened: ExitStack
    """Closes all files and gives up the directories."""

    def execute(self, plan: ReadPlan) -> ReadOutcome:
        """Fetch what a plan names, on any thread; blocks if ``plan.needs_disk``. Raises nothing."""
        return execute_plan(self.files, plan)

    def checkpoint_now(self) -> None:
        """Make everything durable in entry logs and indexes; see :mod:`~bookie_server.storage.blocking`."""
        write_checkpoint(self.contents, self.checkpoints)

    def close(self) -> None:
        """Close all files and give up the directories; writes nothing. Idempotent."""
        self.opened.close()
