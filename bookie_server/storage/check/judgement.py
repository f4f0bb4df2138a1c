"""Judgement of a bookie's directories: is everything there and sound, and what would a start do.

The start itself is tried, on files that nothing is written to: the same inspection and start plan, the
same recovery. In addition every stored block is read and held against its checksum, which no start
does. The metadata is not asked, so one question stays open: whether the cluster knows of a later start
than these disks do (`bookkeeper cookies show`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from bookie_server.settings import StorageSettings
from bookie_server.storage.check.dry_run import DryRunFiles
from bookie_server.storage.checkpoint import Checkpoints
from bookie_server.storage.disk.errors import (
    DamagedFileError,
    StorageFailedError,
    StorageRefusedError,
)
from bookie_server.storage.disk.files import FileSystem
from bookie_server.storage.identity.cookie_file import instance_id_of
from bookie_server.storage.identity.inspection import FoundDirectory, inspect
from bookie_server.storage.identity.start_plan import Applicant, plan_start
from bookie_server.storage.index.directory import DirectoryIndex
from bookie_server.storage.journal.journal_file import (
    BLOCK_SIZE,
    file_ids,
    file_name,
    parse_file_header,
)
from bookie_server.storage.logs.entry_log import file_name as log_name
from bookie_server.storage.logs.entry_log import is_block_sound, log_ids, read_footer
from bookie_server.storage.logs.rows import Block
from bookie_server.storage.recovery import recover


@dataclass(slots=True)
class Judgement:
    """What was found; nothing was changed."""

    settings: StorageSettings
    start: str = ""
    """What a start would do, in a sentence."""
    notes: list[str] = field(default_factory=list)
    """What is worth knowing and no fault."""
    problems: list[str] = field(default_factory=list)
    """What is wrong, with directory or file, and the way out where there is one."""
    ledgers: int = 0
    blocks: int = 0
    bytes_checked: int = 0

    @property
    def is_sound(self) -> bool:
        """A start would take the directories as they are, and nothing in them is damaged."""
        return not self.problems


def judge_directories(
    files: FileSystem,
    settings: StorageSettings,
    *,
    progress: Callable[[int], None] = lambda _: None,
) -> Judgement:
    """Judge the directories of one bookie, which must not run; nothing is written.

    ``progress`` is called with the bytes of journals and entry logs read so far.

    Raises:
        OSError: a directory cannot be read.
    """
    judge = _Judge(files, settings, progress)
    found = inspect(files, settings)
    judge.judge_identity(found)
    instance_id = _instance_id(files, found)
    if instance_id is not None:
        judge.check_logs(instance_id)
        # What was refused would only be refused again, by another name.
        if judge.result.is_sound or judge.is_accepted:
            judge.try_recovery(instance_id)
    elif any(each.has_records for each in found):
        judge.result.problems.append(
            f"{found[0].path}: no cookie and no journal header say whose files these are"
        )
    return judge.result


class _Judge:
    """The steps of one judgement, and what they find."""

    def __init__(
        self, files: FileSystem, settings: StorageSettings, progress: Callable[[int], None]
    ) -> None:
        self._files = DryRunFiles(files)
        self._settings = settings
        self._progress = progress
        self._bytes_read = 0
        self.result = Judgement(settings)
        self.is_accepted = False
        """The start plan takes the directories."""

    def judge_identity(self, found: Sequence[FoundDirectory]) -> None:
        """Cookies and start counters, held against each other as a start does."""
        result = self.result
        try:
            plan = plan_start(found, _applicant(found), lambda: "new")
        except StorageRefusedError as refusal:
            result.start = "a start would refuse them"
            result.problems.append(f"{refusal.path}: {refusal.detail}")
            return
        self.is_accepted = True
        result.notes += plan.notes
        has_cookie = any(each.cookie is not None for each in found)
        if not has_cookie and not any(each.has_records for each in found):
            result.start = "a start would make a new bookie of them"
        elif not has_cookie:
            result.start = "a start would adopt them: they are of a version without cookies"
        elif not all(each.start is not None for each in found):
            result.start = "a start would finish the first one, which was cut short"
        else:
            result.start = f"a start would go on with them, as start {plan.start.number}"

    def check_logs(self, instance_id: bytes) -> None:
        """Every entry log: footer, the checksums of its blocks, and whether the index has it."""
        for number, directory in enumerate(self._settings.ledger_directories):
            index = DirectoryIndex(self._files, directory, number, instance_id)
            try:
                index.load()
            except (StorageRefusedError, OSError):
                continue  # the recovery says so
            finally:
                index.close()
            stored = log_ids(self._files, directory)
            named = {row.block.log_id for rows in index.rows.values() for row in rows}
            for log_id in sorted(named.difference(stored)):
                self._report(directory, log_id, "the index names it, and it is missing")
            for log_id in stored:
                is_leftover = not index.damage and log_id > index.state.last_log_id
                if is_leftover and log_id not in named:
                    name = f"{directory}/{log_name(log_id)}"
                    self.result.notes.append(f"{name}: a crash left it, a start deletes it")
                else:
                    self._check_log(directory, log_id, instance_id)

    def try_recovery(self, instance_id: bytes) -> None:
        """The recovery of a start, of which nothing reaches the disk."""
        files, settings, result = self._files, self._settings, self.result
        indexes = [
            DirectoryIndex(files, directory, number, instance_id)
            for number, directory in enumerate(settings.ledger_directories)
        ]
        checkpoints = Checkpoints(files, settings, indexes, instance_id=instance_id)
        before = self._bytes_read
        try:
            contents, report = recover(
                files,
                settings,
                indexes,
                checkpoints,
                instance_id=instance_id,
                progress=lambda replayed: self._progress(before + replayed),
            )
        except StorageRefusedError as refusal:
            result.problems.append(f"{refusal.path}: {refusal.detail}")
            return
        except (StorageFailedError, OSError) as failure:
            result.problems.append(f"it cannot be read: {failure}")
            return
        finally:
            for index in indexes:
                index.close()
        result.ledgers = len(contents.ledgers)
        result.problems += [str(damage) for damage in report.damage]
        result.notes.append(
            f"journals: {report.records} records of {report.groups} groups to replay"
            + (f", {report.groups_torn} cut short by a crash" if report.groups_torn else "")
        )
        if report.damage:
            result.notes.append(
                "after damage a start denies nothing of its older ledgers (limbo); other copies answer"
            )

    def _check_log(self, directory: str, log_id: int, instance_id: bytes) -> None:
        try:
            rows = read_footer(self._files, directory, log_id, instance_id)
        except (DamagedFileError, OSError) as error:
            self._report(directory, log_id, getattr(error, "detail", str(error)))
            return
        # A block has a row for each pattern of its ids.
        owners: dict[Block, int] = {row.block: ledger_id for ledger_id, row in rows}
        with self._files.open(f"{directory}/{log_name(log_id)}") as file:
            for block, ledger_id in sorted(owners.items(), key=lambda each: each[0].offset):
                try:
                    is_sound = is_block_sound(file, block)
                except OSError as error:
                    self._report(directory, log_id, f"block at {block.offset}: {error}")
                    continue
                if not is_sound:
                    detail = f"block at {block.offset} is damaged: entries of ledger {ledger_id}"
                    self._report(directory, log_id, detail)
                self.result.blocks += 1
                self.result.bytes_checked += block.size_bytes
                self._bytes_read += block.size_bytes
                self._progress(self._bytes_read)

    def _report(self, directory: str, log_id: int, detail: str) -> None:
        self.result.problems.append(f"{directory}/{log_name(log_id)}: {detail}")


def _applicant(found: Sequence[FoundDirectory]) -> Applicant:
    """Who started on these directories last, with the metadata that a start would then have found."""
    cookies = [each.cookie for each in found if each.cookie is not None]
    starts = [each.start for each in found if each.start is not None]
    owner = max(cookies, key=lambda cookie: cookie.directories.revision, default=None)
    # A start counts on all disks first: where they differ by one, the metadata has the lower.
    counted = sorted(starts, key=lambda start: start.number)
    latest = counted[-1] if counted else None
    if latest is not None and counted[0].number == latest.number - 1:
        latest = counted[0]
    return Applicant(
        bookie_id=owner.bookie_id if owner is not None else "",
        cluster_id=owner.cluster_id if owner is not None else "",
        has_cookie=latest is not None,
        starts=latest.number if latest is not None else 0,
        start_id=latest.start_id if latest is not None else "",
        collections=min((start.collections for start in starts), default=0),
    )


def _instance_id(files: FileSystem, found: Sequence[FoundDirectory]) -> bytes | None:
    """What every file of the bookie carries: from its cookie, else from its first journal."""
    applicant = _applicant(found)
    if applicant.bookie_id:
        return instance_id_of(applicant.cluster_id, applicant.bookie_id)
    for each in found:
        for file_id in file_ids(files, each.path) if each.has_records else ():
            with files.open(f"{each.path}/{file_name(file_id)}") as file:
                header = parse_file_header(file.read_at(0, BLOCK_SIZE))
            if header is not None:
                return header.instance_id
    return None
