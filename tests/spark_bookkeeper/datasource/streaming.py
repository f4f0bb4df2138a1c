"""A streaming query as Spark runs it, step by step, and a writer outside Spark, over a fake cluster.

The order of calls is Spark's ``MicroBatchExecution``: the start of the first batch is asked for
again and again, its end is kept before it runs, and a restart runs the last kept batch again unless
it was committed. A run can be cut off between any two steps.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.streaming.datasource import ReadLimit

from bookkeeper_metadata.ledgers import ExtraOperations
from bookkeeper_metadata.model import NO_ENTRY_ID, LedgerMetadata, LedgerState
from spark_bookkeeper.datasource.options.parse import parse_stream_read_options
from spark_bookkeeper.datasource.read.follow import LogFollower
from spark_bookkeeper.datasource.read.limits import default_limit
from spark_bookkeeper.datasource.read.readable import find_readable
from spark_bookkeeper.datasource.read.task import read_slices
from spark_bookkeeper.log.format.model import LogSettings
from spark_bookkeeper.log.writing.tail import LogTail
from tests.spark_bookkeeper.datasource.rows import SCHEMA, batch, ids
from tests.spark_bookkeeper.datasource.world import HERE, FakeSpark

EARLIEST = {"startingoffsets": "earliest"}


class StreamQuery:
    """One query with its checkpoint; ``run`` is what begins with ``start()`` and may be cut off."""

    def __init__(self, world: FakeSpark, **options: str) -> None:
        self.world = world
        self.options = options
        self.ends: list[str] = []
        """Spark's offset log: the end of each batch."""
        self.committed = 0
        """Batches in Spark's commit log."""
        self.clock_ms = 0
        self.restart()

    def restart(self, *, is_available_now: bool = False, **options: str) -> None:
        """Begin another run, in another process."""
        self.options = {**self.options, **options}
        given = parse_stream_read_options({"log": "orders", **self.options}, HERE)
        readable = find_readable(self.world.session, given)
        self.given, self.readable = given, readable
        self.follower = LogFollower(
            self.world.session, given, readable, clock_ms=lambda: self.clock_ms
        )
        if is_available_now:
            self.follower.pin_target()

    def plan(self, limit: ReadLimit | None = None) -> bool:
        """Keep the end of the next batch, if there is one; a kept batch is not planned again."""
        if len(self.ends) > self.committed:
            return True
        start = self._start()
        end = self.follower.next_offset(json.loads(start), limit or default_limit(self.given))
        if self.ends and json.dumps(end) == self.ends[-1]:
            return False
        self.ends.append(json.dumps(end))
        if self.committed:
            self.follower.commit(json.loads(self.ends[self.committed - 1]))
        return True

    def read(self) -> pa.Table:
        """The rows of the kept batch, without committing it."""
        start = json.loads(self._start())
        packs = self.follower.plan(start, json.loads(self.ends[self.committed]))
        schema = self.readable.columns(self.given)
        batches = [
            batch
            for pack in packs
            for batch in read_slices(self.world.session, self.given, self.readable, schema, pack)
        ]
        return pa.Table.from_batches(batches) if batches else pa.table({})

    def trigger(self, limit: ReadLimit | None = None) -> pa.Table | None:
        """One trigger in which nothing goes wrong; ``None``: there was no batch."""
        if not self.plan(limit):
            return None
        found = self.read()
        self.committed += 1
        return found

    def available_now(self) -> list[pa.Table]:
        """A run until there is nothing left that was there when it began."""
        self.restart(is_available_now=True)
        found = []
        while (batch := self.trigger()) is not None:
            found.append(batch)
            assert len(found) < 1000, "it has to come to an end"
        return found

    def _start(self) -> str:
        if not self.committed:
            return json.dumps(self.follower.initial_offset())
        return self.ends[self.committed - 1]


class OutsideWriter:
    """Leads the log as a ``LogWriter`` does, with a ledger whose confirmation a test decides."""

    def __init__(self, world: FakeSpark) -> None:
        self.world = world
        nodes = world.nodes()
        self._tail = LogTail(nodes, self._recover, clock_ms=lambda: world.now_ms, pause=_no_pause)
        self.ledger_id = -1
        self.roll()

    def append(self, *values: bytes) -> None:
        """Append values; confirmed unless :meth:`confirm` says less."""
        self.world.client.ledgers[self.ledger_id].payloads.extend(values)

    def confirm(self, last_entry: int | None) -> None:
        """What bookies say from now on; ``None``: all that was appended."""
        self.world.client.ledgers[self.ledger_id].confirmed = last_entry

    def roll(self) -> None:
        """End the open ledger and begin the next."""
        tenure = self.world.client.run(self._tail.follow(self._create, check=lambda found: None))
        self.ledger_id = tenure.appender.ledger_id

    def close(self) -> None:
        """End the open ledger; nobody leads the log then."""
        self.world.client.run(self._tail.close())

    async def _create(self, settings: LogSettings, extra_operations: ExtraOperations) -> Any:
        made = await self.world.client.created(settings, b"", {}, extra_operations)
        ledger = self.world.client.ledgers[made.ledger_id]
        ledger.metadata = replace(ledger.metadata, created_ms=self.world.now_ms)
        return made

    async def _recover(self, ledger_id: int) -> LedgerMetadata:
        ledger = self.world.client.ledgers[ledger_id]
        ledger.is_closed = ledger.is_fenced = True
        last = len(ledger.payloads) - 1
        ledger.metadata = replace(
            ledger.metadata,
            state=LedgerState.CLOSED,
            last_entry=last if ledger.payloads else NO_ENTRY_ID,
            length=sum(map(len, ledger.payloads)),
        )
        return ledger.metadata


async def _no_pause(number: int) -> None:
    await asyncio.sleep(0)


def values(table: pa.Table | None) -> list[bytes]:
    """The values of a raw log's batch."""
    assert table is not None
    return table["value"].to_pylist() if table.num_rows else []


def ids_of(tables: Sequence[pa.Table]) -> list[list[int]]:
    """The ids of each batch."""
    return [table["id"].to_pylist() if table.num_rows else [] for table in tables]


def stream_of(world: FakeSpark, count: int, **options: str) -> StreamQuery:
    """A query that reads a log of so many rows from its beginning."""
    append(world, 0, count)
    return StreamQuery(world, **EARLIEST, **options)


def append(world: FakeSpark, first: int, count: int, **options: str) -> None:
    """One commit of rows with these ids."""
    world.write([[batch(first, count)]], SCHEMA, is_overwrite=False, **options)


def overwrite(world: FakeSpark, first: int, count: int) -> None:
    """Replace everything by rows with these ids."""
    world.write([[batch(first, count)]], SCHEMA, is_overwrite=True)


def drop_before(world: FakeSpark, row: int) -> None:
    """Truncate the log."""
    nodes = world.nodes()
    world.session.run(world.session.truncate(nodes.log_id, "orders", row))


def rows(found: pa.Table | None) -> list[int] | None:
    """The ids of a batch; ``None``: there was no batch."""
    return None if found is None else ids(found)


def count(found: pa.Table | None) -> int | None:
    """The rows of a batch; ``None``: there was no batch."""
    return None if found is None else found.num_rows


def ends(query: StreamQuery) -> list[dict[str, int]]:
    """The offsets Spark keeps."""
    return [json.loads(end) for end in query.ends]
