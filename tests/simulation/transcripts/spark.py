"""Plans, tasks, commits and sweeps of micro-batches, by the product's log layer, in words."""

from __future__ import annotations

from collections.abc import Coroutine
from itertools import count
from random import Random
from typing import Any

from bookkeeper_metadata.foundation.errors import BookKeeperError
from bookkeeper_metadata.ledgers import ExtraOperations
from bookkeeper_metadata.store.memory import Fault
from bookkeeper_metadata.store.memory_tree import MemoryTree
from bookkeeper_metadata.store.operations import Create
from spark_bookkeeper.log.commits.commit import CommitSummary
from spark_bookkeeper.log.format.epoch import Epoch, Job, LedgerWritten, TaskMessage
from spark_bookkeeper.log.format.model import LogSettings
from spark_bookkeeper.log.format.serde import parse_head, parse_token, parse_txn
from spark_bookkeeper.log.layer import LogLayer
from spark_bookkeeper.log.nodes.paths import LogTree
from tests.simulation.transcripts.desk import CoroutineDesk, Lines, SpokenStore

ROOT = "/ledgers"
LOG = "orders"
NOW_MS = 1_700_000_000_000


class SparkDesk(CoroutineDesk):
    """One log, and the drivers and tasks that write to it."""

    def __init__(self, words: list[str]) -> None:
        super().__init__()
        self._log = LogTree("")
        tree = MemoryTree()
        tree.make_parents(f"{ROOT}/0")
        self._store = SpokenStore(tree, self.lines.append, self._shown)
        self._layer = LogLayer(
            self._store,
            ROOT,
            fence=self._fence,
            delete_ledger=self._delete,
            clock_ms=lambda: NOW_MS,
            random=Random(0),
        )
        settings = LogSettings(payload_format="raw")
        self._log_id = self.run(self._layer.catalog.create(LOG, settings, b"schema"))
        self._log = self._layer.nodes(self._log_id, LOG).tree
        self.lines.clear()
        self._epochs: dict[str, Epoch] = {}
        """By driver."""
        self._jobs: dict[str, Job] = {}
        self._messages: dict[str, dict[int, TaskMessage]] = {}
        """By driver and partition: the newest attempt's."""
        self._summaries: dict[str, CommitSummary] = {}
        self._attempts, self._ledgers = count(1), count()

    def perform(self, name: str, words: list[str]) -> Lines:
        match name:
            case "plan":
                self._try(self._plan(words[0], Job.of_stream(words[1], int(words[2]))))
            case "task":
                self._try(self._task(words[0], int(words[1]), int(words[2])))
            case "commit":
                self._try(self._commit(words[0]))
            case "sweep":
                self._try(self._layer.sweeper.after_commit(self._summaries[words[0]]))
            case "lose":
                self._store.fault = lambda operation, path: self._lose(operation, words[0])
            case _:
                raise AssertionError(f"nobody at Spark knows {name}")
        self.go_on()
        return self.taken()

    def _try(self, work: Coroutine[Any, Any, object]) -> None:
        try:
            self.run(work)
        except BookKeeperError as error:
            self.lines.append(f"fails: {type(error).__name__}")

    async def _plan(self, driver: str, job: Job) -> None:
        self._jobs[driver] = job
        # A stream's plan does not know its batch yet.
        epoch = self._epochs[driver] = await self._layer.jobs.plan(self._log_id, LOG)
        self._messages[driver] = {}
        self.lines.append(f"planned: epoch {epoch.number}")

    async def _task(self, driver: str, partition: int, rows: int) -> None:
        epoch, job, jobs = self._epochs[driver], self._jobs[driver], self._layer.jobs
        number = next(self._attempts)
        claim = await jobs.claim(epoch, job, partition=partition, task_attempt_id=number)
        written = None
        if claim is None:
            self.lines.append("skipped: its transaction is stored")
        else:
            with claim.explain_refusals():
                ledger = await self._create(claim.extra_operations)
            self.lines.append(f"write {rows} rows to ledger {ledger} and close it")
            await jobs.fence_predecessors(claim)
            written = LedgerWritten(ledger, rows - 1, rows, rows, epoch.schema_id)
        self._messages[driver][partition] = TaskMessage(
            epoch=epoch,
            job=job,
            partition=partition,
            task_attempt_id=number,
            written=written,
            is_already_committed=claim is None,
        )

    async def _commit(self, driver: str) -> None:
        messages = list(self._messages[driver].values())
        summary = await self._layer.committer.commit(messages, log=LOG)
        self._summaries[driver] = summary
        self.lines.append(f"{summary.outcome.name}: {summary.rows} rows")

    async def _create(self, extra_operations: ExtraOperations) -> int:
        ledger = next(self._ledgers)
        await self._store.multi([Create(f"{ROOT}/{ledger}", b""), *extra_operations(ledger)])
        return ledger

    async def _fence(self, ledger_id: int) -> None:
        self.lines.append(f"fence ledger {ledger_id}")

    async def _delete(self, ledger_id: int) -> None:
        self.lines.append(f"delete ledger {ledger_id}")

    def _lose(self, operation: str, lost: str) -> Fault | None:
        if operation != lost:
            return None
        self._store.fault = None
        self.lines.append("its reply is lost")
        return Fault.LOST_REPLY

    def _shown(self, path: str, value: bytes) -> str:
        if path.startswith(f"{ROOT}/"):
            return f"ledger {path.removeprefix(f'{ROOT}/')}"
        name = f"{path}/".removeprefix(f"{self._log.root}/").rstrip("/") or "the log"
        if name == "head" and value:
            head = parse_head(path, value)
            parts = (f"{part.rows} in ledger {part.ledger_id}" for part in head.ranges)
            return f"{name}: rows {head.base_row}..{head.next_row - 1}, {', '.join(parts)}"
        if name.startswith("txn/") and value:
            stored = parse_txn(path, value)
            return f"{name}: batch {stored.version} by epoch {stored.epoch}"
        if name.startswith("tokens/") and name.count("/") == 1 and value:
            return f"{name}: {parse_token(path, value).state.name}"
        return name
