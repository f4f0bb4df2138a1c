"""Auto-recovery of one process: it stands for auditor, and mends what is marked, whoever marked it."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable

from bookkeeper_metadata.election import AuditorElection
from bookkeeper_metadata.foundation.pace import LoopPace
from bookkeeper_metadata.foundation.tasks import run_together
from bookkeeper_metadata.underreplication import Underreplication
from spark_bookkeeper.ledger.context import LedgerContext
from spark_bookkeeper.replication.auditor import Auditor
from spark_bookkeeper.replication.lost_bookies import Patience
from spark_bookkeeper.replication.measures import ReplicationMeasures
from spark_bookkeeper.replication.mending import LedgerMender
from spark_bookkeeper.replication.settings import ReplicationSettings
from spark_bookkeeper.replication.worker import ReplicationWorker


def name_of_process() -> str:
    """By which votes and locks name this process, for people to read."""
    return f"{socket.gethostname()}:{os.getpid()}"


def wall_clock_ms() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


async def run_auto_recovery(
    cluster: LedgerContext,
    settings: ReplicationSettings,
    *,
    holder: str,
    own: str | None = None,
    clock_ms: Callable[[], int] = wall_clock_ms,
    measures: ReplicationMeasures | None = None,
) -> None:
    """Audit if elected, and mend, until cancelled; every error but a defect is logged and got over.

    ``holder`` is the name of this process in votes and locks; ``own`` the bookie beside which it runs.
    """
    measures = measures or ReplicationMeasures()
    measures.pace = LoopPace(settings.bytes_per_second)
    marks = Underreplication(cluster.store, cluster.root, random=cluster.random)
    auditor = Auditor(
        cluster,
        marks,
        AuditorElection(cluster.store, cluster.root, holder),
        settings=settings,
        clock_ms=clock_ms,
        measures=measures,
    )
    patience = Patience(settings.lost_bookie_delay_ms / 1000)
    mender = LedgerMender(cluster, measures.pace, own, patience=patience)
    worker = ReplicationWorker(
        cluster,
        marks,
        mender,
        holder=holder,
        settings=settings,
        patience=patience,
        measures=measures,
    )
    # Neither ends but by a defect, and then the process does, for somebody to notice.
    await run_together(auditor=auditor.run(), replication_worker=worker.run())
