"""Who wrote the rows of a ledger, and when: out of its range and its custom metadata.

A ledger Spark wrote has one origin; one that was rewritten from several has a run for each.
"""

from __future__ import annotations

from bookkeeper_metadata.errors import MetadataCorruptError
from bookkeeper_metadata.model import LedgerMetadata
from spark_bookkeeper.datasource.session import BATCH_ID_KEY, PAYLOAD_KEY, QUERY_ID_KEY
from spark_bookkeeper.log.format.model import LedgerRange
from spark_bookkeeper.log.format.runs import RUNS_KEY, Run, Runs, parse_runs


def origins_of(item: LedgerRange, ledger_id: int, metadata: LedgerMetadata) -> Runs:
    """The origins of the rows of a range, in order; rows count from the range's first one.

    Raises:
        MetadataCorruptError: what the metadata says is not what is ever written there.
    """
    custom = metadata.custom_metadata
    if RUNS_KEY in custom:
        runs = parse_runs(ledger_id, custom[RUNS_KEY])
        if runs.rows < item.rows:
            raise MetadataCorruptError(
                f"ledger {ledger_id}", f"{RUNS_KEY} tells of {runs.rows} of {item.rows} rows"
            )
        return runs
    query_id = custom.get(QUERY_ID_KEY)
    return Runs(
        (
            Run(
                item.rows,
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
    try:
        return None if mark is None else int(mark)
    except ValueError as error:
        raise MetadataCorruptError(
            f"ledger {ledger_id}", f"custom metadata {BATCH_ID_KEY} is no number: {mark!r:.50}"
        ) from error
