"""A query, its input, its checkpoint and its log: what stays while drivers come and go."""

from __future__ import annotations

from pathlib import Path

from spark_bookkeeper import BookKeeper
from spark_bookkeeper.local.cluster import LocalCluster
from spark_bookkeeper.log.format.epoch import TokenState
from tests.spark.calls import noted_batches
from tests.spark.checkers import check_rows, check_whole_batches
from tests.spark.drivers import Driver
from tests.spark.kills.gate import Gate
from tests.spark.kills.query import BATCH_ROWS, SETTINGS
from tests.spark.kills.sources import Files, RawLog, Source
from tests.spark.leftovers import assert_nothing_left, collect
from tests.spark.witness import Witness

DAYS_LATER = 8
"""By then every job has timed out."""


class Scene:
    """One log and the query that fills it; every driver gets a gate of its own."""

    def __init__(
        self,
        cluster: LocalCluster,
        bk: BookKeeper,
        directory: Path,
        log: str,
        *,
        is_from_log: bool = False,
    ) -> None:
        self.source: Source = RawLog(bk, f"{log}-source") if is_from_log else Files(directory)
        self.directory = directory
        self.checkpoint = directory / "checkpoint"
        self.log = log
        self.uri = cluster.metadata_service_uri
        self.witness = Witness(self.uri, log)
        self.is_shuffled = False
        """A run has shuffled rows, so a partition has no order of its own."""
        self._cluster = cluster
        self._bk = bk
        self._ledgers_before = set(bk.list_ledgers())
        self._drivers = 0

    @property
    def batches(self) -> list[range]:
        """The ids of each micro-batch."""
        return [
            range(number * BATCH_ROWS, (number + 1) * BATCH_ROWS)
            for number in range(self.source.batches)
        ]

    def add_batches(self, count: int) -> None:
        """More input: so many micro-batches."""
        for _ in range(count):
            self.source.add_batch()

    def gate(self) -> Gate:
        """A way to this cluster's ZooKeeper."""
        return Gate(self._cluster.zookeeper.port)

    def driver(self) -> Driver:
        """A new driver process, once it is entered."""
        self._drivers += 1
        return Driver(SETTINGS, self.directory / f"driver-{self._drivers}.log")

    def options(self, gate: Gate | None = None) -> dict[str, str]:
        """The sink's options, through ``gate`` if there is one."""
        return {
            "metadataServiceUri": self.uri if gate is None else gate.uri,
            "log": self.log,
            "checkpointLocation": str(self.checkpoint),
            "compression": "none",
            "entryBytes": "1k",
        }

    def last_noted_batch(self) -> int:
        """The last batch whose end Spark has noted in its commit log; -1: none."""
        return max(noted_batches(self.checkpoint), default=-1)

    def check_now(self) -> int:
        """Whole batches only, each once; returns how many are visible."""
        return check_whole_batches(self.witness.look(is_ordered=not self.is_shuffled), self.batches)

    def check_done(self) -> None:
        """Everything is visible once, and nothing is left behind."""
        self._check_rows()
        self.check_nothing_left()
        self._check_rows()

    def check_nothing_left(self) -> None:
        """A collection now takes no token that may still commit; one later takes all that is left."""
        live = {epoch for epoch, state in self.witness.tokens().items() if state is TokenState.LIVE}
        taken = collect(self.uri, self.log)
        assert set(taken.tokens_killed) <= live
        others = self._ledgers_before | self.source.ledgers()
        assert_nothing_left(self._bk, self.log, others, days_later=DAYS_LATER)

    def _check_rows(self) -> None:
        check_rows(
            self.witness.look(is_ordered=not self.is_shuffled),
            [each for batch in self.batches for each in batch],
        )
