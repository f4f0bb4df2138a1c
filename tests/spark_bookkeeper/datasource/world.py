"""A cluster for the data source's tests, and Spark's part in it, played step by step.

Everything above the client is the real thing: options, log layer, payloads. ``before_append`` and
the store's ``fault`` hook let a test decide what goes wrong, and when.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Self

import pyarrow as pa
from pyspark.sql.datasource import Filter
from pyspark.sql.types import StructType

from bookkeeper_metadata.model import Fragment, LedgerMetadata
from spark_bookkeeper.datasource.options.model import ReadOptions
from spark_bookkeeper.datasource.options.parse import parse_read_options, parse_write_options
from spark_bookkeeper.datasource.payload.envelope import parse_envelope
from spark_bookkeeper.datasource.read.batch import PushedFilters, plan_read
from spark_bookkeeper.datasource.read.readable import Readable, find_readable
from spark_bookkeeper.datasource.read.task import read_slices
from spark_bookkeeper.datasource.session import Session
from spark_bookkeeper.datasource.write.batch import abort_batch
from spark_bookkeeper.datasource.write.finish import commit_write
from spark_bookkeeper.datasource.write.plan import WritePlan, make_plan
from spark_bookkeeper.datasource.write.stream import commit_stream
from spark_bookkeeper.datasource.write.task import TaskIdentity, WriteTask
from spark_bookkeeper.log.format.epoch import Job, TaskMessage
from spark_bookkeeper.log.nodes.reads import LogNodes
from tests.doubles.ledger_client import FakeClient, FakeLedger
from tests.spark_bookkeeper.datasource.rows import SCHEMA, batch, payload_of

HERE = {"BOOKKEEPER_METADATA_URI": "zk+hierarchical://fake/ledgers"}


def many_entries(world: FakeSpark, rows: int = 1_000, partitions: int = 2) -> FakeLedger:
    """A log whose ledgers have several entries each; the first ledger."""
    each = rows // partitions
    batches = [[batch(at * each, each)] for at in range(partitions)]
    world.write(batches, SCHEMA, entrybytes="2k", compression="none")
    assert all(len(ledger.payloads) > 5 for ledger in world.client.ledgers.values())
    return world.client.ledgers[0]


def foreign_ledger(world: FakeSpark, ledger_id: int, *payloads: bytes) -> FakeLedger:
    """A closed ledger of somebody else's."""
    metadata = LedgerMetadata(
        ensemble_size=1, write_quorum=1, ack_quorum=1, fragments=(Fragment(0, ("b0",)),)
    )
    ledger = FakeLedger(metadata=metadata, payloads=list(payloads), is_closed=True)
    world.client.ledgers[ledger_id] = ledger
    return ledger


def marked(ledger: FakeLedger, marks: dict[str, bytes]) -> None:
    """Replace the ledger's custom metadata."""
    ledger.metadata = replace(ledger.metadata, custom_metadata=marks)


def resized(payload: bytes, change: int) -> bytes:
    """The entry with so many rows more."""
    found = parse_envelope(payload)
    rows = batch(found.first_row, found.rows + change)
    return payload_of(rows, "none", first_row=found.first_row)


class FakeSpark:
    """A fake cluster with a clock set by hand, and Spark's part played step by step."""

    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000
        self.client = FakeClient(lambda: self.now_ms)
        self.session = Session(self.client, clock_ms=lambda: self.now_ms, random=Random(7))
        self._attempts = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    def plan(self, schema: StructType, *, is_overwrite: bool = False, **options: str) -> WritePlan:
        """What ``writer()`` does on the driver."""
        given = parse_write_options({"log": "orders", **options}, HERE)
        return make_plan(self.session, given, schema, is_overwrite=is_overwrite)

    def attempt(
        self, plan: WritePlan, partition: int, batches: list[pa.RecordBatch], *, query_id: str = ""
    ) -> TaskMessage:
        """One task attempt, start to end; later attempts have larger ids."""
        return self._run(plan, plan.batch_job(query_id), partition, batches)

    def stream_attempt(
        self,
        plan: WritePlan,
        partition: int,
        batches: list[pa.RecordBatch],
        query_id: str,
        batch_id: int,
    ) -> TaskMessage:
        """As :meth:`attempt`, in a micro-batch of a query."""
        return self._run(plan, Job.of_stream(query_id, batch_id), partition, batches)

    def _run(
        self, plan: WritePlan, job: Job, partition: int, batches: list[pa.RecordBatch]
    ) -> TaskMessage:
        self._attempts += 1
        task = TaskIdentity(job, partition, self._attempts)
        return WriteTask(self.session, plan, task).run(iter(batches))

    def stream_commit(self, messages: Sequence[TaskMessage | None], batch_id: int) -> None:
        """What the driver does when all tasks of a micro-batch succeeded."""
        commit_stream(self.session, "orders", messages, batch_id)

    def stream_abort(self, messages: Sequence[TaskMessage | None]) -> None:
        """What the driver does when a micro-batch failed."""
        self.session.run(self.session.sweeper.abort(messages, log="orders"))

    def commit(self, plan: WritePlan, messages: list[TaskMessage | None]) -> None:
        """What the driver does when all tasks succeeded."""
        commit_write(self.session, plan.epoch.log, messages)

    def abort(self, plan: WritePlan, messages: list[TaskMessage | None]) -> None:
        """What the driver does when a task or the commit failed."""
        abort_batch(self.session, plan, messages)

    def write(
        self,
        partitions: list[list[pa.RecordBatch]],
        schema: StructType,
        *,
        is_overwrite: bool = False,
        **options: str,
    ) -> WritePlan:
        """A whole write in which nothing goes wrong."""
        plan = self.plan(schema, is_overwrite=is_overwrite, **options)
        self.commit(plan, [self.attempt(plan, at, rows) for at, rows in enumerate(partitions)])
        return plan

    def read(
        self, schema: StructType | None = None, *, filters: Sequence[Filter] = (), **options: str
    ) -> pa.Table:
        """All rows a ``load()`` would give, in partition order, before Spark filters them."""
        return self.read_planned(*self.find(**options), schema=schema, filters=filters)

    def find(self, **options: str) -> tuple[ReadOptions, Readable]:
        """What ``load()`` looks up before the read is planned."""
        if "ledger" not in options:
            options = {"log": "orders", **options}
        given = parse_read_options(options, HERE)
        return given, find_readable(self.session, given)

    def read_planned(
        self,
        given: ReadOptions,
        readable: Readable,
        *,
        schema: StructType | None = None,
        filters: Sequence[Filter] = (),
    ) -> pa.Table:
        """As :meth:`read`, of what was found before."""
        wanted = schema or readable.columns(given)
        readable.check_wanted(given, wanted)
        pushed = PushedFilters(readable, wanted)
        assert pushed(list(filters)) == list(filters)
        session, predicate = self.session, pushed.predicate
        batches = [
            batch
            for pack in plan_read(session, given, readable, predicate=predicate)
            for batch in read_slices(session, given, readable, wanted, pack, predicate=predicate)
        ]
        return pa.Table.from_batches(batches) if batches else pa.table({})

    def run_unattended(self) -> None:
        """Let everything that waits for nobody run."""
        waiting, self.client.unattended = self.client.unattended, []
        for coroutine in waiting:
            self.client.run(coroutine)

    def nodes(self) -> LogNodes:
        """The metadata of the log."""
        return self.client.run(self.session.catalog.open("orders"))

    def tokens(self) -> list[int]:
        """Epochs that still have a token."""
        return self.client.run(self.nodes().epochs())
