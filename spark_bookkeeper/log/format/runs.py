"""Who wrote the rows of a rewritten ledger, and when: kept in the ledger's custom metadata.

A ledger that Spark wrote says it once for all its rows. A ledger rewritten from many says it in *runs*:
rows that follow each other and have one origin. Runs are stored as differences and compressed; for
micro-batches of one query that is about four bytes a run.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from google.protobuf.message import DecodeError

from bookkeeper_metadata.errors import MetadataCorruptError
from spark_bookkeeper.log.format import log_pb2 as pb

RUNS_KEY = "sparkRuns"
"""Custom metadata of a rewritten ledger."""
RUNS_VERSION = 1
RUNS_BYTES_MAX = 32 * 1024
"""Of the stored value; a ledger whose rows have more origins than fit ends before."""
_DECODED_BYTES_MAX = 8 * 1024 * 1024
"""What a reader decompresses at most: a value is written by anybody who may write metadata."""


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive rows of one origin."""

    rows: int
    commit_ms: int
    """When they became visible."""
    shown_ms: int
    """What ``_timestamp`` says: of rows written outside Spark, when their ledger was made."""
    query_id: str | None = None
    batch_id: int | None = None


def merged(runs: Sequence[Run]) -> list[Run]:
    """The same rows in as few runs as their origins allow."""
    found: list[Run] = []
    for run in runs:
        if found and replace(found[-1], rows=run.rows) == run:
            found[-1] = replace(run, rows=found[-1].rows + run.rows)
        else:
            found.append(run)
    return found


def encode_runs(runs: Sequence[Run], bytes_max: int = RUNS_BYTES_MAX) -> bytes | None:
    """The stored value; equal runs are equal bytes. ``None``: it has more bytes, or is more than a reader takes."""
    query_ids = sorted({run.query_id for run in runs if run.query_id is not None})
    number = {query_id: at + 1 for at, query_id in enumerate(query_ids)}
    batches = [0 if run.batch_id is None else run.batch_id + 1 for run in runs]
    message = pb.Runs(
        query_ids=query_ids,
        rows=[run.rows for run in runs],
        commit_ms=_differences([run.commit_ms for run in runs]),
        shown_ms=[run.shown_ms - run.commit_ms for run in runs],
        query=[0 if run.query_id is None else number[run.query_id] for run in runs],
        batch_id=_differences(batches),
    )
    # What packs well may still be more than a reader unpacks.
    if message.ByteSize() > _DECODED_BYTES_MAX:
        return None
    packed = zlib.compress(message.SerializeToString(deterministic=True), 9)
    return bytes([RUNS_VERSION]) + packed if len(packed) < bytes_max else None


def parse_runs(ledger_id: int, value: bytes) -> Runs:
    """The runs in the custom metadata of a ledger.

    Raises:
        MetadataCorruptError: there are none, or of a version this build does not know.
    """
    where = f"ledger {ledger_id}, {RUNS_KEY}"
    if value[:1] != bytes([RUNS_VERSION]):
        raise MetadataCorruptError(where, f"format version {value[:1]!r}; this build reads 1")
    inflate = zlib.decompressobj()
    message = pb.Runs()
    try:
        message.ParseFromString(inflate.decompress(value[1:], _DECODED_BYTES_MAX))
        columns = (
            message.rows,
            accumulate(message.commit_ms),
            message.shown_ms,
            message.query,
            accumulate(message.batch_id),
        )
        runs = [
            Run(
                rows,
                commit_ms,
                commit_ms + shown,
                message.query_ids[query - 1] if query > 0 else None,
                batch - 1 if batch > 0 else None,
            )
            for rows, commit_ms, shown, query, batch in zip(*columns, strict=True)
        ]
    except (zlib.error, DecodeError, ValueError, IndexError) as cause:
        raise MetadataCorruptError(where, str(cause)) from cause
    if not inflate.eof or any(run.rows < 1 for run in runs) or not runs:
        raise MetadataCorruptError(where, "it is cut off, too large, or has a run without rows")
    return Runs(tuple(runs))


class Runs:
    """The runs of one ledger, by the rows they hold; rows count from the ledger's first one."""

    def __init__(self, runs: tuple[Run, ...]) -> None:
        self.runs = runs
        self._ends = list(accumulate(run.rows for run in runs))

    @property
    def rows(self) -> int:
        """Of all runs."""
        return self._ends[-1]

    def between(self, first_row: int, end_row: int) -> list[Run]:
        """The runs of the rows from ``first_row`` to before ``end_row``, cut to them."""
        found: list[Run] = []
        at, row = bisect_right(self._ends, first_row), first_row
        while row < end_row and at < len(self.runs):
            end = min(self._ends[at], end_row)
            found.append(replace(self.runs[at], rows=end - row))
            at, row = at + 1, end
        return found

    def first_row_since(self, timestamp_ms: int) -> int:
        """The first row committed at ``timestamp_ms`` or later; the number of rows if none was."""
        row = 0
        for run in self.runs:
            if run.commit_ms >= timestamp_ms:
                break
            row += run.rows
        return row


def _differences(values: Sequence[int]) -> list[int]:
    return [value - before for value, before in zip(values, (0, *values), strict=False)]
