"""P10: logs of many ranges: planning a read of them, and commits however many came before."""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path
from random import Random
from statistics import median

from pyspark.sql.datasource import GreaterThanOrEqual
from pyspark.sql.types import LongType, StructField, StructType

from benchmarks.figures import Figure
from bookkeeper_metadata.cluster import initialize
from bookkeeper_metadata.store.interface import MetadataStore
from bookkeeper_metadata.store.memory import MemoryStore
from bookkeeper_metadata.store.zookeeper import ZooKeeperStore
from spark_bookkeeper.datasource.read.bounds import ranges_that_may_hold
from spark_bookkeeper.datasource.read.partitions import PlanLimits, plan
from spark_bookkeeper.datasource.read.pruning import ALL_ROWS, Predicate, predicate_of
from spark_bookkeeper.local.zookeeper import ZooKeeperProcess
from spark_bookkeeper.log.format.columns import ColumnRange
from spark_bookkeeper.log.format.epoch import Job, LedgerWritten, TaskMessage
from spark_bookkeeper.log.format.model import LogSettings
from spark_bookkeeper.log.layer import LogLayer

ROOT = "/ledgers"
COLUMNS = 8
"""Bounds per range, as many as a write records unless told otherwise."""
ROWS, SIZE_BYTES = 1_000_000, 32 << 20
_LEDGERS_PER_COMMIT = 1_000
_ROUNDS = 3
_ENDS = 100
"""Commits of each end of a long history that are compared."""


async def _no_ledger(ledger_id: int) -> None:
    """These logs' ledgers exist by name only."""


class _Log:
    """One log whose ledgers nobody wrote."""

    def __init__(self, store: MetadataStore, name: str) -> None:
        self.name = name
        self.layer = LogLayer(
            store, ROOT, fence=_no_ledger, delete_ledger=_no_ledger, random=Random(1)
        )
        self.log_id = 0
        self._ledger_id = 0
        self._commits = 0

    async def create(self) -> None:
        """Create it, empty."""
        self.log_id = await self.layer.catalog.create(self.name, LogSettings(), b"schema")

    async def commit(self, ledgers: int) -> float:
        """Plan, commit and sweep a write of so many ledgers; returns the commit's own seconds."""
        self._commits += 1
        job = Job.of_batch(f"job-{self._commits}")
        epoch = await self.layer.jobs.plan(self.log_id, self.name, job=job)
        messages = []
        for at in range(ledgers):
            self._ledger_id += 1
            first = self._ledger_id * 1_000
            bounds = tuple(ColumnRange(f"c{n}", first, first + 999) for n in range(COLUMNS))
            written = LedgerWritten(self._ledger_id, 31, ROWS, SIZE_BYTES, 0, bounds)
            messages.append(
                TaskMessage(epoch=epoch, job=job, partition=at, task_attempt_id=at, written=written)
            )
        began = time.perf_counter()
        summary = await self.layer.committer.commit(messages, log=self.name)
        seconds = time.perf_counter() - began
        await self.layer.sweeper.after_commit(summary)
        return seconds

    async def plan_read(self, predicate: Predicate = ALL_ROWS) -> tuple[float, float, float]:
        """Wall and CPU ms to plan a read of all that may satisfy a filter, and its partitions."""
        began, began_cpu = time.perf_counter(), time.process_time()
        view = self.layer.view(self.log_id, self.name)
        found = await view.ranges(columns=predicate.columns)
        ranges = ranges_that_may_hold(found.ranges, predicate, predicate.columns)
        packs = plan(ranges, found.from_row, found.to_row, PlanLimits(), row_is_entry=False)
        cpu_ms = (time.process_time() - began_cpu) * 1e3
        return (time.perf_counter() - began) * 1e3, cpu_ms, float(len(packs))


async def _planning(store: MetadataStore, store_is: str, ranges: int) -> Figure:
    log = _Log(store, "planning")
    await log.create()
    commits = [
        await log.commit(min(_LEDGERS_PER_COMMIT, ranges - at))
        for at in range(0, ranges, _LEDGERS_PER_COMMIT)
    ]
    bare, cpu_ms, partitions = min([await log.plan_read() for _ in range(_ROUNDS)])
    pruned, pruned_cpu_ms, kept = min(
        [await log.plan_read(_last_of(ranges)) for _ in range(_ROUNDS)]
    )
    notes = {
        "cpu_ms": cpu_ms,
        "partitions": partitions,
        "filtered_ms": pruned,
        "filtered_cpu_ms": pruned_cpu_ms,
        "filtered_partitions": kept,
        f"commit_of_{_LEDGERS_PER_COMMIT}_ms": median(commits) * 1e3,
    }
    return Figure("P10", f"plan {ranges} ranges, {store_is}", bare, "ms", notes=notes)


def _last_of(ranges: int) -> Predicate:
    """A filter that the last range alone may satisfy."""
    wanted = GreaterThanOrEqual(("c0",), ranges * 1_000)
    return predicate_of([wanted], StructType([StructField("c0", LongType())]), {"c0"})


async def _one_large_commit(store: MetadataStore, partitions: int) -> Figure:
    log = _Log(store, "large")
    await log.create()
    seconds = await log.commit(partitions)
    return Figure("P10", f"one commit of {partitions} partitions", seconds * 1e3, "ms")


async def _many_commits(store: MetadataStore, commits: int) -> Figure:
    log = _Log(store, "many")
    await log.create()
    taken = [await log.commit(1) for _ in range(commits)]
    first, last = median(taken[:_ENDS]) * 1e3, median(taken[-_ENDS:]) * 1e3
    notes = {"max_ms": max(taken) * 1e3}
    what = f"commit, the last {_ENDS} of {commits}"
    return Figure("P10", what, last, "ms", first, f"the first {_ENDS}", notes)


async def _largest_node(store: MetadataStore, path: str) -> int:
    """Bytes of the largest value below ``path``."""
    node = await store.get(path)
    largest = len(node.value) if node is not None else 0
    for name in await store.children(path) or []:
        largest = max(largest, await _largest_node(store, f"{path}/{name}"))
    return largest


async def _in_zookeeper(service: str, seconds: float) -> list[Figure]:
    async with await ZooKeeperStore.connect([service]) as store:
        await initialize(store, ROOT)
        figures = [
            await _planning(store, "ZooKeeper", max(1_000, round(25_000 * seconds))),
            await _one_large_commit(store, max(100, round(2_500 * seconds))),
            await _many_commits(store, max(2 * _ENDS, round(2_500 * seconds))),
        ]
        largest = await _largest_node(store, f"{ROOT}-logs")
        figures.append(Figure("P10", "largest znode of all these", largest / 1024, "KiB"))
        return figures


async def _in_memory(seconds: float) -> Figure:
    store = MemoryStore()
    await initialize(store, ROOT)
    return await _planning(store, "in memory", max(1_000, round(25_000 * seconds)))


def p10(seconds: float) -> list[Figure]:
    """Four seconds stand for 10^5 ranges, and 10^4 partitions and commits."""
    with (
        tempfile.TemporaryDirectory(prefix="bookkeeper-p10-") as folder,
        ZooKeeperProcess(Path(folder)) as zookeeper,
    ):
        figures = asyncio.run(_in_zookeeper(zookeeper.service, seconds))
    return [*figures, asyncio.run(_in_memory(seconds))]
