"""Values to ``raw`` payloads: one value of one column and nothing else.

There is no envelope and no footer, so that any BookKeeper consumer reads the entries as they are.
"""

from __future__ import annotations

import pyarrow as pa

from spark_bookkeeper.datasource.errors import RawNullError, RowTooLargeError
from spark_bookkeeper.datasource.payload.entry_cutter import PAYLOAD_BYTES_MAX


def raw_payloads(column: pa.Array, first_row: int) -> list[bytes]:
    """One payload per value. ``first_row`` is the row of the partition, for the message.

    Raises:
        RowTooLargeError: a value does not fit into an entry.
        RawNullError: a value is null, which a raw entry cannot express.
    """
    if column.null_count:
        raise RawNullError(first_row + column.is_null().to_pylist().index(True))
    values: list[bytes] = column.cast(pa.large_binary()).to_pylist()
    for index, value in enumerate(values):
        if len(value) > PAYLOAD_BYTES_MAX:
            raise RowTooLargeError(first_row + index, len(value), PAYLOAD_BYTES_MAX)
    return values
