"""How a write ends on the driver: committed and swept, or given up; one line says what happened."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql.datasource import WriterCommitMessage

from spark_bookkeeper.datasource.evolution import covers
from spark_bookkeeper.datasource.session import Session
from spark_bookkeeper.datasource.worker_logging import log_if_handled
from spark_bookkeeper.datasource.write.upkeep import collect_if_due
from spark_bookkeeper.log.cleaning.sweep import SweepReport
from spark_bookkeeper.log.commits.commit import CommitOutcome, CommitSummary
from spark_bookkeeper.log.format.epoch import Job, TaskMessage

_log = logging.getLogger("spark_bookkeeper.commits")


@dataclass(frozen=True, slots=True)
class WriteMessage(WriterCommitMessage):  # type: ignore[misc, unused-ignore]
    """What a finished task sends to the commit."""

    task: TaskMessage


def task_messages(messages: Sequence[WriterCommitMessage | None]) -> list[TaskMessage | None]:
    """What the tasks said; ``None`` for one that sent nothing."""
    return [message.task if isinstance(message, WriteMessage) else None for message in messages]


def commit_write(
    session: Session, log: str, messages: Sequence[TaskMessage | None]
) -> CommitSummary:
    """Commit and sweep.

    Raises: as :meth:`spark_bookkeeper.log.commits.commit.Committer.commit`.
    """
    summary = session.run(session.committer.commit(messages, log=log, covers=covers))
    # After a replay too: what this run's tasks wrote nobody will ever name. A sweep that fails is
    # only logged, for the rows are visible already.
    report = session.run(session.sweeper.after_commit(summary))
    fields = _fields(summary, report) + _missed(messages)
    if summary.outcome is CommitOutcome.REPLAYED:
        # A warning, because rows were given to this write and the log did not grow by them.
        say(logging.WARNING, f"replay skipped: committed before, adds nothing. {fields}")
    else:
        say(logging.INFO, f"committed. {fields}")
    collect_if_due(session, summary.epoch.log_id, log)
    return summary


def say(level: int, line: str) -> None:
    """Log a line about a commit; without a handler it goes to standard error, Spark's own log."""
    if not log_if_handled(_log, level, line):
        sys.stderr.write(f"{logging.getLevelName(level)} {_log.name}: {line}\n")
        sys.stderr.flush()


def _fields(summary: CommitSummary, report: SweepReport) -> str:
    return (
        f"log={summary.epoch.log} {_job_fields(summary.job)} epoch={summary.epoch.number} "
        f"ledgers={len(summary.ledger_ids)} rows={summary.rows} size_bytes={summary.size_bytes} "
        f"elapsed_ms={summary.elapsed_ms} swept={len(report.ledgers_deleted)}"
    )


def _missed(messages: Sequence[TaskMessage | None]) -> str:
    """Which bookies lack entries that were committed; nothing in the usual case of none."""
    missed = {bookie for message in messages if message for bookie in message.bookies_missed}
    return f" under_replicated_at={','.join(sorted(missed))}" if missed else ""


def _job_fields(job: Job) -> str:
    if job.txn is None:
        return f"job={job.job_id}"
    if job.txn.is_stream:
        return f"query={job.txn.app_id} batch={job.txn.version}"
    return f"txn_app_id={job.txn.app_id} txn_version={job.txn.version}"
