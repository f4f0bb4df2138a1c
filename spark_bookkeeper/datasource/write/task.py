"""What one write task does: claim at the first rows, write its own ledger, close it, say so.

Nothing it does becomes visible by itself: the driver's commit decides, from the message returned
here. A task that fails leaves its ledger to the sweep, and never closes what it could not finish.
Memory is bounded by one entry being filled and ``maxInFlightBytes`` not yet acknowledged.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa

from bookkeeper_metadata.foundation.errors import BookKeeperError
from spark_bookkeeper.blocking.add_future import AddFuture
from spark_bookkeeper.blocking.write_handle import WriteHandle
from spark_bookkeeper.datasource.payload.codec import encoder_of, ledger_marks
from spark_bookkeeper.datasource.payload.entry_cutter import CutEntry, EntryCutter
from spark_bookkeeper.datasource.payload.footer import FOOTER_KEY, FOOTER_VERSION, FooterBuilder
from spark_bookkeeper.datasource.payload.raw import raw_payloads
from spark_bookkeeper.datasource.schema import cast_batch, check_values
from spark_bookkeeper.datasource.session import (
    BATCH_ID_KEY,
    PAYLOAD_KEY,
    QUERY_ID_KEY,
    SCHEMA_KEY,
    Session,
)
from spark_bookkeeper.datasource.write.plan import WritePlan
from spark_bookkeeper.ledger.client import LOG_MARK
from spark_bookkeeper.log.commits.jobs import Claim
from spark_bookkeeper.log.format.epoch import Job, LedgerWritten, TaskMessage
from spark_bookkeeper.log.format.raw import RAW
from spark_bookkeeper.log.ledgers import replication_of

FENCE_PREDECESSORS_TIMEOUT_S = 5.0
"""Longest a finished task waits for its predecessors to be fenced; the sweep does the rest."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TaskIdentity:
    """Which attempt at which partition of which write this is."""

    job: Job
    partition: int
    task_attempt_id: int
    run_id: str = ""
    """Spark's, for people: a query's runs share everything else."""


class WriteTask:
    """One attempt at one partition."""

    def __init__(self, session: Session, plan: WritePlan, task: TaskIdentity) -> None:
        self._session = session
        self._plan = plan
        self._task = task

    def run(self, batches: Iterator[pa.RecordBatch]) -> TaskMessage:
        """Write all rows; returns what the driver needs to commit them.

        Raises:
            EpochFencedError: another attempt or run took over; nothing of this one is visible.
            BookKeeperError: why it could not be written.
        """
        # Spark runs a task for an empty partition too, and the commit refuses a missing message: so
        # there is always one, but a ledger only where there are rows.
        first = next((batch for batch in batches if batch.num_rows), None)
        if first is None:
            return self._message()
        claim = self._session.run(
            self._session.jobs.claim(
                self._plan.epoch,
                self._task.job,
                partition=self._task.partition,
                task_attempt_id=self._task.task_attempt_id,
            )
        )
        # Committed before, so the rest of the input need not even be computed. The commit looks
        # again, and finds a replay.
        if claim is None:
            return self._message(is_already_committed=True)
        ledger = self._create_ledger(claim)
        pipeline = _Pipeline(ledger, self._plan.options.in_flight_bytes_max)
        is_raw = self._plan.settings.payload_format == RAW
        write = self._write_raw if is_raw else self._write_batches
        written = write(chain((first,), batches), pipeline)
        # Closed before it is named: readers then find its end in its metadata and need no recovery.
        ledger.close()
        # Not earlier: as long as this attempt may fail, an earlier one of the partition may be the
        # one that succeeds.
        self._fence_predecessors(claim)
        return self._message(written, bookies_missed=tuple(ledger.bookies_missed))

    def _message(
        self,
        written: LedgerWritten | None = None,
        *,
        is_already_committed: bool = False,
        bookies_missed: tuple[str, ...] = (),
    ) -> TaskMessage:
        return TaskMessage(
            epoch=self._plan.epoch,
            job=self._task.job,
            partition=self._task.partition,
            task_attempt_id=self._task.task_attempt_id,
            run_id=self._task.run_id,
            written=written,
            is_already_committed=is_already_committed,
            bookies_missed=bookies_missed,
        )

    def _create_ledger(self, claim: Claim) -> WriteHandle:
        plan = self._plan
        marks = {
            LOG_MARK: plan.epoch.log.encode(),
            SCHEMA_KEY: f"{plan.epoch.log_id}/{plan.epoch.schema_id}".encode(),
            PAYLOAD_KEY: plan.settings.payload_format.encode(),
            **ledger_marks(plan.settings.payload_format, plan.schema.arrow),
        }
        if plan.settings.payload_format != RAW:
            marks[FOOTER_KEY] = FOOTER_VERSION
        txn = self._task.job.txn
        if txn is not None and txn.is_stream:
            # The columns _query_id and _batch_id are read from here: ranges of a log do not keep
            # them.
            marks[QUERY_ID_KEY] = txn.app_id.encode()
            marks[BATCH_ID_KEY] = str(txn.version).encode()
        # The multi that makes the ledger notes it under the token too, so there is never a ledger
        # that a sweep could not find.
        with claim.explain_refusals():
            return self._session.client.create_ledger(
                **replication_of(plan.settings),
                password=plan.options.read_password(),
                custom_metadata=marks,
                extra_operations=claim.extra_operations,
            )

    def _write_batches(
        self, batches: Iterator[pa.RecordBatch], pipeline: _Pipeline
    ) -> LedgerWritten:
        plan, settings = self._plan, self._plan.settings
        target, schema_id = plan.schema.arrow, plan.epoch.schema_id
        encoder = encoder_of(settings.payload_format, target, schema_id, settings.compression)
        cutter = EntryCutter(
            lambda batch, first_row: encoder.encode(batch, first_row, self._session.clock_ms()),
            settings.entry_bytes,
        )
        footer = FooterBuilder(target, plan.options.stats_columns)

        def cut() -> Iterator[CutEntry]:
            for batch in batches:
                rows = cast_batch(batch, target, plan.positions)
                # Readers validate an entry as a whole: one bad text would cost all rows around it.
                check_values(rows)
                yield from cutter.add(rows)
            yield from cutter.finish()

        for entry in cut():
            footer.add(entry)
            pipeline.append(entry.payload)
        # Taken before the footer goes out, which holds no rows: the range that the log records ends
        # before it.
        entries, size_bytes = pipeline.entries, pipeline.size_bytes
        closing = footer.encode(schema_id, self._session.clock_ms())
        if closing is not None:
            pipeline.append(closing)
        # A message may only name what is acknowledged: anything else need not be there tomorrow.
        pipeline.drain()
        bounds = footer.column_ranges()
        return LedgerWritten(
            pipeline.ledger_id, entries - 1, cutter.rows, size_bytes, schema_id, bounds
        )

    def _write_raw(self, batches: Iterator[pa.RecordBatch], pipeline: _Pipeline) -> LedgerWritten:
        for batch in batches:
            check_values(batch)
            for payload in raw_payloads(batch.column(0), pipeline.entries):
                pipeline.append(payload)
        pipeline.drain()
        return LedgerWritten(
            pipeline.ledger_id,
            pipeline.entries - 1,
            pipeline.entries,
            pipeline.size_bytes,
            self._plan.epoch.schema_id,
        )

    def _fence_predecessors(self, claim: Claim) -> None:
        """Fence the ledgers that earlier attempts left open; the task goes on if that fails."""
        fencing = self._session.jobs.fence_predecessors(claim)
        try:
            self._session.run(asyncio.wait_for(fencing, FENCE_PREDECESSORS_TIMEOUT_S))
        except (BookKeeperError, TimeoutError) as cause:
            _log.warning(
                "earlier attempts not fenced; the sweep will. partition=%d cause=%s",
                self._task.partition,
                cause,
            )


class _Pipeline:
    """Appends entries to a ledger, with a bound on the bytes not yet acknowledged."""

    def __init__(self, ledger: WriteHandle, in_flight_bytes_max: int) -> None:
        self.ledger_id = ledger.ledger_id
        self.entries = 0
        self.size_bytes = 0
        self._ledger = ledger
        self._bytes_max = in_flight_bytes_max
        self._in_flight: deque[tuple[AddFuture[int], int]] = deque()
        self._in_flight_bytes = 0

    def append(self, payload: bytes) -> None:
        """Hand one entry over, after waiting for room.

        Raises:
            BookKeeperError: this entry or one before it was not acknowledged.
        """
        # What is done is looked at even while there is room: futures complete in entry order, so a
        # failed entry ends the task here and not after it has filled the window.
        while self._in_flight and (
            self._in_flight[0][0].done() or self._in_flight_bytes + len(payload) > self._bytes_max
        ):
            self._await_oldest()
        self._in_flight.append((self._ledger.append_async(payload), len(payload)))
        self._in_flight_bytes += len(payload)
        self.entries += 1
        self.size_bytes += len(payload)

    def drain(self) -> None:
        """Wait until everything is acknowledged; raises as :meth:`append`."""
        while self._in_flight:
            self._await_oldest()

    def _await_oldest(self) -> None:
        future, size = self._in_flight.popleft()
        future.result()
        self._in_flight_bytes -= size
