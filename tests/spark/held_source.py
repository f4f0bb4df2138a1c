"""``format("held_bookkeeper")``: the product's source, whose write tasks can be stopped halfway.

The first ``holdAttempts`` (1) attempts at each partition named in ``holdPartitions`` (``0,3`` or
``all``) take in all of their rows, write the first batch, say so in ``holdFolder`` and wait there until they are released:
by then their ledgers hold entries and are open. Everything else, plan and commit included, is the
product's. What Spark does meanwhile it cannot notice, like a worker that swaps or a network that
hangs: so it is a straggler, and once Spark has given it up a zombie.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    DataSourceStreamWriter,
    DataSourceWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from pyspark_bookkeeper import DefaultSource
from tests.patience import Deadline

FORMAT = "held_bookkeeper"
HOLD_TIMEOUT_S = 120.0
POLL_INTERVAL_S = 0.02


@dataclass(frozen=True, slots=True)
class Held:
    """One attempt that waits in the middle of its write."""

    partition: int
    task_attempt_id: int
    worker_pid: int
    executor_pid: int


class Hold:
    """The folder in which attempts say where they are, and tests say when they may go on."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def held(self) -> list[Held]:
        """The attempts that were held so far."""
        return [Held(**json.loads(path.read_text())) for path in self.folder.glob("held-*")]

    def wait_for_held(
        self, count: int, is_running: Callable[[], bool] = lambda: True
    ) -> list[Held]:
        """``count`` attempts, once they are held, or fewer once ``is_running`` says no."""
        _wait_until(lambda: len(self.held()) >= count or not is_running(), f"{count} held attempts")
        return self.held()

    def release(self, *attempts: Held) -> None:
        """Let these attempts go on; every one, also of times to come, if none is named."""
        names = [f"released-{attempt.task_attempt_id}" for attempt in attempts] or ["released"]
        for name in names:
            (self.folder / name).touch()

    def wait_for_end(self, attempt: Held) -> str:
        """How the write of a held attempt ended: ``finished``, the error it met, or ``killed``."""
        path, process = self._end_path(attempt.task_attempt_id), Path(f"/proc/{attempt.worker_pid}")
        _wait_until(lambda: path.exists() or not process.exists(), f"the end of {attempt}")
        return path.read_text() if path.exists() else "killed"

    def enter(self, partition: int, attempts: int) -> bool:
        """Whether the caller is one of the first ``attempts`` at its partition."""
        for number in range(attempts):
            with suppress(FileExistsError):
                (self.folder / f"attempt-{partition}-{number}").touch(exist_ok=False)
                return True
        return False

    def wait(self, partition: int, task_attempt_id: int) -> None:
        """Say where we are; return when released."""
        daemon_pid = os.getppid()
        executor_pid = int(
            Path(f"/proc/{daemon_pid}/stat").read_text().rpartition(")")[2].split()[1]
        )
        facts = Held(partition, task_attempt_id, os.getpid(), executor_pid)
        self._put(f"held-{task_attempt_id}", json.dumps(asdict(facts)))
        ours, everyones = self.folder / f"released-{task_attempt_id}", self.folder / "released"
        _wait_until(lambda: ours.exists() or everyones.exists(), "a release")

    def end(self, task_attempt_id: int, how: str) -> None:
        """Say how the write ended."""
        self._put(self._end_path(task_attempt_id).name, how)

    def _end_path(self, task_attempt_id: int) -> Path:
        return self.folder / f"ended-{task_attempt_id}"

    def _put(self, name: str, text: str) -> None:
        unnamed = self.folder / f".{name}"
        unnamed.write_text(text)
        unnamed.rename(self.folder / name)


@dataclass(frozen=True, slots=True)
class Holding:
    """Which attempts are held, and where they say so."""

    hold: Hold
    partitions: str
    attempts: int

    def write(self, inner: Any, batches: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """``inner.write(batches)``, held if this attempt is to be."""
        context = TaskContext.get()
        assert context is not None
        partition, attempt = context.partitionId(), context.taskAttemptId()
        named = self.partitions == "all" or str(partition) in self.partitions.split(",")
        if not named or not self.hold.enter(partition, self.attempts):
            return inner.write(batches)  # type: ignore[no-any-return, unused-ignore]
        try:
            message = inner.write(
                _halfway(list(batches), lambda: self.hold.wait(partition, attempt))
            )
        except BaseException as error:
            self.hold.end(attempt, f"{type(error).__name__}: {error}")
            raise
        self.hold.end(attempt, "finished")
        return message  # type: ignore[no-any-return, unused-ignore]


class HeldSource(DefaultSource):
    """The product's source with two options more."""

    def __init__(self, options: dict[str, str]) -> None:
        own = {key.lower(): value for key, value in options.items()}
        self._hold = Hold(Path(own.pop("holdfolder")))
        self._partitions = own.pop("holdpartitions")
        self._attempts = int(own.pop("holdattempts", "1"))
        super().__init__(own)

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return HeldBatchWriter(super().writer(schema, overwrite), self._holding())

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        return HeldStreamWriter(super().streamWriter(schema, overwrite), self._holding())

    def _holding(self) -> Holding:
        return Holding(self._hold, self._partitions, self._attempts)


class HeldBatchWriter(DataSourceArrowWriter):  # type: ignore[misc, unused-ignore]
    """A batch write of the product whose attempts may be held."""

    def __init__(self, inner: Any, holding: Holding) -> None:
        self._inner = inner
        self._holding = holding

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._holding.write(self._inner, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._inner.commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._inner.abort(messages)


class HeldStreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc, unused-ignore]
    """A micro-batch's write of the product whose attempts may be held."""

    def __init__(self, inner: Any, holding: Holding) -> None:
        self._inner = inner
        self._holding = holding

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._holding.write(self._inner, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self._inner.commit(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self._inner.abort(messages, batchId)


def _halfway(batches: list[pa.RecordBatch], wait: Any) -> Iterator[pa.RecordBatch]:
    assert len(batches) > 1, "nothing would be left to write after the wait"
    yield batches[0]
    wait()
    yield from batches[1:]


def _wait_until(is_so: Any, what: str) -> None:
    deadline = Deadline(HOLD_TIMEOUT_S)
    while not is_so():
        if deadline.has_passed:
            raise TimeoutError(f"waited in vain for {what}")
        with suppress(InterruptedError):
            threading.Event().wait(POLL_INTERVAL_S)
