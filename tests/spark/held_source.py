"""``format("held_bookkeeper")``: the product's source, whose write tasks can be stopped halfway.

The first ``holdAttempts`` (1) attempts at each partition named in ``holdPartitions`` (``0,3`` or
``all``) take in all of their rows, write the first batch, say so in ``holdFolder`` and wait there
until they are released: by then their ledgers hold entries and are open. Everything else, plan and
commit included, is the product's. What Spark does meanwhile it cannot notice, like a worker that swaps or a network that
hangs: so it is a straggler, and once Spark has given it up a zombie.
"""

from __future__ import annotations

import json
import os
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
from tests.spark.waits import WAIT_TIMEOUT_S, wait_until

FORMAT = "held_bookkeeper"


@dataclass(frozen=True, slots=True)
class Held:
    """One attempt that waits in the middle of its write."""

    partition: int
    task_attempt_id: int
    worker_pid: int
    executor_pid: int


@dataclass(frozen=True, slots=True)
class Hold:
    """The folder in which attempts say where they are, and tests say when they may go on."""

    folder: Path
    partitions: str = "none"
    """Whose attempts are held."""
    attempts: int = 1
    """How many of each."""

    def held(self) -> list[Held]:
        """The attempts that were held so far."""
        return [Held(**json.loads(path.read_text())) for path in self.folder.glob("held-*")]

    def wait_for_held(
        self, count: int, is_running: Callable[[], bool] = lambda: True
    ) -> list[Held]:
        """``count`` attempts, once they are held, or fewer once ``is_running`` says no."""
        wait_until(lambda: len(self.held()) >= count or not is_running(), f"{count} held attempts")
        return self.held()

    def release(self, *attempts: Held) -> None:
        """Let these attempts go on; every one, also of times to come, if none is named."""
        names = [f"released-{attempt.task_attempt_id}" for attempt in attempts] or ["released"]
        for name in names:
            (self.folder / name).touch()

    def wait_for_end(self, attempt: Held) -> str:
        """How the write of a held attempt ended: ``finished``, the error it met, or ``killed``."""
        path = self._end_path(attempt.task_attempt_id)
        wait_until(lambda: path.exists() or not _is_alive(attempt.worker_pid), f"end of {attempt}")
        return path.read_text() if path.exists() else "killed"

    def enter(self, partition: int) -> bool:
        """Whether the caller's attempt is to be held; counts."""
        if self.partitions != "all" and str(partition) not in self.partitions.split(","):
            return False
        for number in range(self.attempts):
            with suppress(FileExistsError):
                (self.folder / f"attempt-{partition}-{number}").touch(exist_ok=False)
                return True
        return False

    def wait(self, partition: int, task_attempt_id: int) -> None:
        """Say where we are; return when released."""
        _, executor_pid = _state_and_parent(os.getppid())
        facts = Held(partition, task_attempt_id, os.getpid(), executor_pid)
        self._put(f"held-{task_attempt_id}", json.dumps(asdict(facts)))
        ours, everyones = self.folder / f"released-{task_attempt_id}", self.folder / "released"
        # As long as the test waits for what it has to see first, one thing after the other.
        wait_until(
            lambda: ours.exists() or everyones.exists(), "a release", timeout_s=4 * WAIT_TIMEOUT_S
        )

    def end(self, task_attempt_id: int, how: str) -> None:
        """Say how the write ended."""
        self._put(self._end_path(task_attempt_id).name, how)

    def _end_path(self, task_attempt_id: int) -> Path:
        return self.folder / f"ended-{task_attempt_id}"

    def _put(self, name: str, text: str) -> None:
        unnamed = self.folder / f".{name}"
        unnamed.write_text(text)
        unnamed.rename(self.folder / name)


class HeldSource(DefaultSource):
    """The product's source with two options more."""

    def __init__(self, options: dict[str, str]) -> None:
        own = {key.lower(): value for key, value in options.items()}
        folder, attempts = Path(own.pop("holdfolder")), int(own.pop("holdattempts", "1"))
        self._hold = Hold(folder, own.pop("holdpartitions"), attempts)
        super().__init__(own)

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return HeldBatchWriter(super().writer(schema, overwrite), self._hold)

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        return HeldStreamWriter(super().streamWriter(schema, overwrite), self._hold)


class _HeldWriter:
    """A write of the product whose attempts may be held."""

    def __init__(self, inner: Any, hold: Hold) -> None:
        self._inner = inner
        self._hold = hold

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context, hold = TaskContext.get(), self._hold
        assert context is not None
        partition, attempt = context.partitionId(), context.taskAttemptId()
        if not hold.enter(partition):
            return self._inner.write(iterator)  # type: ignore[no-any-return, unused-ignore]
        try:
            batches = _halfway(list(iterator), lambda: hold.wait(partition, attempt))
            message: WriterCommitMessage = self._inner.write(batches)
        except BaseException as error:
            hold.end(attempt, f"{type(error).__name__}: {error}")
            raise
        hold.end(attempt, "finished")
        return message

    def commit(self, *given: Any) -> None:
        self._inner.commit(*given)

    def abort(self, *given: Any) -> None:
        self._inner.abort(*given)


class HeldBatchWriter(_HeldWriter, DataSourceArrowWriter):  # type: ignore[misc, unused-ignore]
    """Of a batch write."""


class HeldStreamWriter(_HeldWriter, DataSourceStreamArrowWriter):  # type: ignore[misc, unused-ignore]
    """Of a micro-batch."""


def _halfway(batches: list[pa.RecordBatch], wait: Callable[[], None]) -> Iterator[pa.RecordBatch]:
    assert len(batches) > 1, "nothing would be left to write after the wait"
    yield batches[0]
    wait()
    yield from batches[1:]


def _state_and_parent(pid: int) -> tuple[str, int]:
    state, parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
    return state, int(parent)


def _is_alive(pid: int) -> bool:
    """Not so of one that ended, whether or not anyone has asked how."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return _state_and_parent(pid)[0] not in "ZX"
    return False
