"""Optimizes a log, instalment by instalment: plan, have the groups rewritten, commit, go on behind.

Whoever rewrites the groups - threads of this process, or tasks of Spark - is given. An instalment that
was interrupted is given up, and its ledgers deleted; what was committed before stays.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from bookkeeper_metadata.foundation.errors import BookKeeperError
from spark_bookkeeper.datasource.optimize.pace import Pace, StoppedError
from spark_bookkeeper.datasource.optimize.rewrite import GroupRewriter, SourcesFailedError
from spark_bookkeeper.datasource.options.model import WriteOptions
from spark_bookkeeper.datasource.session import Session
from spark_bookkeeper.log.cleaning.optimize import Instalment, Optimized, Rewritten
from spark_bookkeeper.log.cleaning.sweep import SweepReport
from spark_bookkeeper.log.format.model import LogSettings
from spark_bookkeeper.log.rules.grouping import GroupLimits

WORKERS = 2
"""Groups this process rewrites at a time: one waits for bookies while the other encodes."""
OTHERS_WAIT_S = 60.0

OTHERS_POLL_S = 1.0

UNREADABLE_MAX = 100
"""Ledgers in a row that cannot be read, without anything rewritten in between, that ranges are grouped
around. Each may cost a time-out, and where nothing can be read that is all there is to find out."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GroupFailed:
    """Why a group stays as it is."""

    group: int
    causes: tuple[str, ...]
    """A line each, beginning with the rows of what failed: of the group, or of ledgers in it."""
    unreadable: frozenset[int] = frozenset()
    """Those ledgers, if they could not be read."""


Outcome = Rewritten | GroupFailed | None
RewriteGroups = Callable[[Instalment, LogSettings], Sequence[Outcome]]


@dataclass(slots=True)
class OptimizeReport:
    """What optimizing a log came to."""

    log: str
    groups: int = 0
    """Groups of ranges that are rewritten."""
    given_up: int = 0
    """Groups that changed meanwhile, or failed; they stay as they are, but for what is grouped anew around a
    ledger that cannot be read."""
    ranges_before: int = 0
    ranges_after: int = 0
    """Of the groups that are rewritten."""
    rows: int = 0
    size_bytes: int = 0
    """Payload bytes of the rewritten ranges."""
    failures: list[str] = field(default_factory=list)

    def add(self, done: Optimized) -> None:
        """Count one more instalment."""
        self.groups += done.groups
        self.given_up += done.given_up
        self.ranges_before += done.ranges_before
        self.ranges_after += done.ranges_after
        self.rows += done.rows
        self.size_bytes += done.size_bytes


def optimize_log(
    session: Session,
    log: str,
    limits: GroupLimits,
    rewrite: RewriteGroups,
    on_progress: Callable[[OptimizeReport], None] = lambda report: None,
    *,
    wait_s: float = OTHERS_WAIT_S,
) -> OptimizeReport:
    """Optimize all that a log has now; ``on_progress`` is told after every instalment.

    Another optimizer of the log is waited for at most ``wait_s``: two at once only do some work in
    vain, and one that was killed counts as at work until its token expires.

    Raises:
        NoSuchLogError: there is no such log.
        CommitRefusedError, CommitUnknownError, MetadataConflictError: an instalment was not
            committed, or nobody knows; those before it are.
    """
    nodes = session.run(session.catalog.open(log))
    optimizer, report = session.optimizer, OptimizeReport(log)
    session.run(_wait_for_others(session, nodes.log_id, log, wait_s))
    # What is committed meanwhile is the next run's: this one would go on for as long as others write.
    head = session.run(nodes.head()).head
    spans, in_a_row = deque([(0, head.next_row)]), 0
    while spans:
        row, end_row = spans.popleft()
        instalment = session.run(optimizer.plan(nodes.log_id, log, limits, row, end_row))
        if instalment is None:
            continue
        try:
            found = rewrite(instalment, head.settings)
            failed = [each for each in found if isinstance(each, GroupFailed)]
            report.failures += [cause for each in failed for cause in each.causes]
            made = [each for each in found if isinstance(each, Rewritten)]
            report.add(session.run(optimizer.commit(instalment, made)))
        except BaseException:
            # Interrupted, perhaps by its user: what was written is of no use to anybody, unless the
            # commit has happened, and that stays.
            session.run(optimizer.give_up(instalment, SweepReport()))
            raise
        on_progress(report)
        spans.appendleft((instalment.next_row, end_row))
        in_a_row = 0 if made else in_a_row
        for each in failed:
            in_a_row += len(each.unreadable)
            # One ledger that cannot be read must not keep its neighbours as they are, for good.
            if each.unreadable and in_a_row < UNREADABLE_MAX:
                limits = replace(limits, unreadable=limits.unreadable | each.unreadable)
                group = instalment.groups[each.group]
                spans.appendleft((group[0].first_row, group[-1].next_row))
    return report


def rewrite_here(
    session: Session, options: WriteOptions, bytes_per_second: int = 0
) -> RewriteGroups:
    """Groups are rewritten by threads of this process, at that pace together; 0: as fast as can be."""
    pace = Pace(bytes_per_second)

    def rewrite(instalment: Instalment, settings: LogSettings) -> Sequence[Outcome]:
        rewriter = GroupRewriter(session, options, settings, instalment, pace)
        with ThreadPoolExecutor(WORKERS, "bookkeeper-optimize") as pool:
            numbers = range(len(instalment.groups))
            try:
                futures = [pool.submit(rewrite_one, rewriter, instalment, at, 0) for at in numbers]
                return [future.result() for future in futures]
            except BaseException:
                # Leaving the pool waits for its threads, which may have hours to go.
                pace.stop()
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    return rewrite


def rewrite_one(
    rewriter: GroupRewriter, instalment: Instalment, number: int, attempt: int
) -> Outcome:
    """One group; why not, if not. One that cannot be read must not hold up the others, ever again."""
    try:
        return rewriter.rewrite(number, attempt)
    except StoppedError:
        raise
    except SourcesFailedError as failed:
        lines = tuple(_line(source.first_row, cause) for source, cause in failed.causes)
        return GroupFailed(number, lines, frozenset(each.ledger_id for each, _ in failed.causes))
    except Exception as cause:  # noqa: BLE001 - whatever it is, it is of this group
        return GroupFailed(number, (_line(instalment.groups[number][0].first_row, cause),))


def _line(first_row: int, cause: Exception) -> str:
    name = cause.name if isinstance(cause, BookKeeperError) else type(cause).__name__
    _log.warning("not rewritten. first_row=%d cause=%s", first_row, cause)
    return f"rows from {first_row} on: {name}: {cause}"


async def _wait_for_others(session: Session, log_id: int, log: str, wait_s: float) -> None:
    loop = asyncio.get_running_loop()
    until_s, has_said = loop.time() + wait_s, False
    while epochs := await session.optimizer.others(log_id, log):
        if not has_said:
            _log.warning("waiting for another optimize. log=%s seconds_max=%g", log, wait_s)
            has_said = True
        if loop.time() >= until_s:
            _log.warning("another optimize is at work; going on beside it. epochs=%s", epochs)
            return
        await asyncio.sleep(OTHERS_POLL_S)
