"""Collects all logs of a cluster, and what deleted ones left: once, or again and again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from bookkeeper_metadata.foundation.errors import BookKeeperError
from bookkeeper_metadata.foundation.measures import Durations
from spark_bookkeeper.log.cleaning.sweep import SweepReport
from spark_bookkeeper.log.errors import NoSuchLogError
from spark_bookkeeper.log.layer import LogLayer

_LOGGER = logging.getLogger(__name__)
_LOOK_AGAIN_S = 10.0
"""How often it looks whether it is time, and its turn."""


@dataclass(slots=True)
class Collected:
    """What collecting everything came to."""

    logs: dict[str, SweepReport] = field(default_factory=dict)
    deletions: dict[int, SweepReport | None] = field(default_factory=dict)
    """By id, of logs whose deletion was interrupted; ``None`` in a dry run."""
    failed: dict[str, Exception] = field(default_factory=dict)
    """By what it was about."""

    @contextmanager
    def _noting_failures(self, what: str) -> Iterator[None]:
        """An error is for the end; a log that was deleted since it was listed is none.

        Whatever it is: who may write to the metadata service may have left nodes that nobody understands.
        """
        try:
            yield
        except NoSuchLogError:
            return
        except Exception as cause:  # noqa: BLE001
            self.failed[what] = cause

    async def _add_log(self, layer: LogLayer, name: str, *, is_dry_run: bool) -> None:
        with self._noting_failures(f"log {name}"):
            log_id = (await layer.catalog.find(name)).log_id
            collect = layer.collector.collect
            self.logs[name] = await collect(log_id, log=name, is_dry_run=is_dry_run)

    async def _add_deletion(self, layer: LogLayer, log_id: int, *, is_dry_run: bool) -> None:
        with self._noting_failures(f"deleted log {log_id}"):
            self.deletions[log_id] = (
                None if is_dry_run else await layer.catalog.finish_deletion(log_id)
            )


@dataclass(slots=True)
class HousekeepingMeasures:
    """Since the start of the process; its event loop counts, any thread may look."""

    rounds: Durations = field(default_factory=Durations)
    """Collections of all logs."""
    failures: int = 0
    """Logs that could not be collected, or listed."""
    deleted_ledgers: int = 0
    dropped_rows: int = 0
    """By logs' retentions."""
    waiting_bytes: int = 0
    """At the last round: dropped, and kept for readers a while."""

    def note(self, took_s: float, collected: Collected) -> None:
        """Count a round."""
        reports = [*collected.logs.values(), *filter(None, collected.deletions.values())]
        self.rounds.add(took_s)
        self.failures += len(collected.failed)
        self.deleted_ledgers += sum(len(each.ledgers_deleted) for each in reports)
        self.dropped_rows += sum(each.rows_dropped for each in reports)
        self.waiting_bytes = sum(each.waiting_bytes for each in reports)


def described(cause: Exception) -> str:
    """An error in a line, with its name."""
    name = cause.name if isinstance(cause, BookKeeperError) else type(cause).__name__
    return f"{name}: {cause}"


async def collect_all(
    layer: LogLayer, *, is_dry_run: bool = False, goes_on: Callable[[], bool] = lambda: True
) -> Collected:
    """Collect every log, one after the other; one that fails keeps none of the others from it.

    ``goes_on`` is asked before each of them.

    Raises:
        MetadataUnavailableError: which logs there are cannot be told.
    """
    collected = Collected()
    for name in await layer.catalog.names():
        if not goes_on():
            return collected
        await collected._add_log(layer, name, is_dry_run=is_dry_run)
    deletions: list[int] = []
    with collected._noting_failures("deleted logs"):
        deletions = await layer.catalog.deletions()
    for log_id in deletions:
        await collected._add_deletion(layer, log_id, is_dry_run=is_dry_run)
    return collected


async def keep_house(
    layer: LogLayer,
    interval_ms: int,
    *,
    is_chosen: Callable[[], bool],
    measures: HousekeepingMeasures,
) -> None:
    """Collect everything every ``interval_ms`` while this process is chosen to; for ever. 0: never.

    Several processes that do it at once only do it twice.
    """
    loop = asyncio.get_running_loop()
    due_s = 0.0
    while True:
        if interval_ms and is_chosen() and loop.time() >= due_s:
            begun_s = loop.time()
            try:
                collected = await collect_all(layer, goes_on=is_chosen)
            except Exception as error:  # noqa: BLE001 - what heals runs in this process, too
                measures.failures += 1
                _LOGGER.warning("logs are not collected now. detail=%r", error)
            else:
                measures.note(loop.time() - begun_s, collected)
                due_s = begun_s + interval_ms / 1000
                for what, cause in collected.failed.items():
                    _LOGGER.warning("not collected. what=%s detail=%s", what, described(cause))
        await asyncio.sleep(min(_LOOK_AGAIN_S, max(interval_ms, 100) / 1000))
