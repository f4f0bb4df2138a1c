"""The table: every decoder that reads a network, a disk or the metadata store, and those without a row of their own.

A new decoder has its row in the file of its room, and nothing else to do: its corpus, its tests and its part of
``make soak`` follow from the row. ``test_every_decoder_is_fuzzed`` fails for one that has neither a row nor a reason.
"""

from __future__ import annotations

from collections.abc import Mapping

from tests.fuzzing import journals, logs, metadata, payloads, rpc, storage, wire
from tests.fuzzing.decoder import Decoder

DECODERS: Mapping[str, Decoder] = {
    decoder.name: decoder
    for room in (wire, rpc, journals, storage, metadata, logs, payloads)
    for decoder in room.DECODERS
}

_READ_BEFORE = "reads fixed places of a record that parse_run or decode_records has found whole"
NOT_FUZZED: Mapping[str, str] = {
    "bookie_server.wire.record.parse_header": _READ_BEFORE,
    "bookkeeper_metadata.update.LedgerNode.parse": "parse_metadata, and the node's own time",
    "spark_bookkeeper.datasource.payload.codec.Decoder.decode": "an interface; Arrow's and Avro's have rows",
}
"""Functions with a decoder's name that have no row, and why."""
