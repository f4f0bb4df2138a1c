"""Who wrote the rows of a ledger, and when: out of its range and its custom metadata.

A ledger Spark wrote has one origin; one that was rewritten from several has a run for each.
"""

from __future__ import annotations

import re

from bookkeeper_metadata.errors import MetadataCorruptError
from bookkeeper_metadata.model import LedgerMetadata
from spark_bookkeeper.datasource.session import BATCH_ID_KEY, PAYLOAD_KEY, QUERY_ID_KEY
from spark_bookkeeper.log.format.model import LedgerRange
from spark_bookkeeper.log.format.runs import RUNS_KEY, Run, Runs, parse_runs

ANY_ROWS = 1 << 62
"""For a ledger read by id: no log says how many rows it has."""


def origins_of(item: LedgerRange, ledger_id: int, metadata: LedgerMetadata, rows: int) -> Runs:
    """The origins of a ledger's ``rows``, which are those of a log's range ``item``, in order.

    Rows count from the range's first one.

    Raises:
        MetadataCorruptError: what the metadata says is not what is ever written there.
    """
    custom = metadata.custom_metadata
    if RUNS_KEY in custom:
        runs = parse_runs(ledger_id, custom[RUNS_KEY])
        if runs.rows < rows != ANY_ROWS:
            raise MetadataCorruptError(
                f"ledger {ledger_id}", f"{RUNS_KEY} tells of {runs.rows} of {rows} rows"
            )
        return runs
    query_id = custom.get(QUERY_ID_KEY)
    return Runs(
        (
            Run(
                rows,
                item.commit_ms,
                _shown_ms(item, metadata),
                None if query_id is None else query_id.decode(errors="replace"),
                _batch_id(ledger_id, custom.get(BATCH_ID_KEY)),
            ),
        )
    )


def _shown_ms(item: LedgerRange, metadata: LedgerMetadata) -> int:
    """When the rows were committed by Spark, or, written outside Spark, when their ledger began.

    Rows written outside Spark are read before their ledger ends, and a batch that is read again
    after that must have the very same rows, so what counts is what is known from the first on.
    """
    if PAYLOAD_KEY in metadata.custom_metadata or metadata.created_ms < 0:
        return item.commit_ms
    return metadata.created_ms


def _batch_id(ledger_id: int, mark: bytes | None) -> int | None:
    if mark is None:
        return None
    # A micro-batch's number has 63 bits. Anybody can write marks into a ledger.
    if not re.fullmatch(rb"\d{1,19}", mark) or int(mark) >= 1 << 63:
        raise MetadataCorruptError(
            f"ledger {ledger_id}", f"custom metadata {BATCH_ID_KEY} is no number: {mark!r:.50}"
        )
    return int(mark)
