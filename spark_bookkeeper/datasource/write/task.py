"""What one write task does: claim at the first rows, write its own ledger, close it, say so.

Nothing it does becomes visible by itself: the driver's commit decides, from the message returned
here. A task that fails leaves its ledger to the sweep, and never closes what it could not finish.
Memory is bounded by one entry being filled and ``maxInFlightBytes`` not yet acknowledged.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa

from bookkeeper_metadata.foundation.errors import BookKeeperError
from spark_bookkeeper.blocking.write_handle import WriteHandle
from spark_bookkeeper.datasource.payload.raw import raw_payloads
from spark_bookkeeper.datasource.schema import cast_batch, check_values
from spark_bookkeeper.datasource.session import (
    BATCH_ID_KEY,
    QUERY_ID_KEY,
    Session,
)
from spark_bookkeeper.datasource.write.ledger_rows import (
    Pipeline,
    RowForm,
    write_batches,
    write_values,
)
from spark_bookkeeper.datasource.write.plan import WritePlan
from spark_bookkeeper.log.commits.jobs import Claim
from spark_bookkeeper.log.format.epoch import Job, LedgerWritten, TaskMessage
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
        self._form = RowForm(
            plan.settings,
            plan.schema.arrow,
            plan.epoch.schema_id,
            plan.options.stats_columns,
            session.clock_ms,
        )

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
        pipeline = Pipeline(ledger, self._plan.options.in_flight_bytes_max)
        given = chain((first,), batches)
        if self._form.is_raw:
            written = write_values(self._values(given), pipeline, self._form.schema_id)
        else:
            written = write_batches(self._rows(given), pipeline, self._form)
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
        marks = self._form.marks(plan.epoch)
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

    def _rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows in the columns and types of the log."""
        for batch in batches:
            rows = cast_batch(batch, self._plan.schema.arrow, self._plan.positions)
            # Readers validate an entry as a whole: one bad text would cost all rows around it.
            check_values(rows)
            yield rows

    def _values(self, batches: Iterator[pa.RecordBatch]) -> Iterator[bytes]:
        """The rows of a raw log."""
        count = 0
        for batch in batches:
            check_values(batch)
            values = raw_payloads(batch.column(0), count)
            count += len(values)
            yield from values

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
