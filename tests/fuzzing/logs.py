"""Decoders of what a log has in the metadata store: its nodes, the names of some, and its schemas."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any

from pyspark.sql.types import ArrayType, DecimalType, LongType, MapType, StringType, StructType

from bookkeeper_metadata.errors import MetadataCorruptError
from spark_bookkeeper.datasource.errors import OffsetInvalidError
from spark_bookkeeper.datasource.read.offsets import parse_offset
from spark_bookkeeper.datasource.schema import log_schema_of, parse_log_schema
from spark_bookkeeper.log.format import runs, serde
from spark_bookkeeper.log.nodes import paths
from tests.fuzzing.decoder import Bound, Decoder
from tests.sources import REPOSITORY

_AT = "spark_bookkeeper.log"
_GOLDEN = REPOSITORY / "tests" / "golden"
_RUNS_ROOM_BYTES = 640 << 20
"""Runs may unfold to 8 MiB of numbers, which are as many Python objects."""


def _golden(*names: str) -> list[bytes]:
    """As released; of versions 1 and 2."""
    found = [
        path
        for name in names
        for path in (_GOLDEN / "v1/log" / f"{name}.hex", _GOLDEN / "v2/log" / f"{name}.hex")
        if path.exists()
    ]
    return [bytes.fromhex(path.read_text(encoding="ascii")) for path in found]


def _stored_runs() -> list[bytes]:
    one = [runs.Run(10, 1_700_000_000_000, 1_700_000_000_000)]
    many = [runs.Run(1 + at % 3, 1_000 * at, 900 * at, f"q{at % 2}", at) for at in range(40)]
    return [encoded for of in (one, many) if (encoded := runs.encode_runs(of))]


def _schemas() -> list[bytes]:
    nested = StructType().add("id", LongType()).add("tags", ArrayType(StringType()))
    nested = nested.add("totals", MapType(StringType(), DecimalType(10, 2)))
    return [
        (_GOLDEN / "v1/payload/schema.json").read_bytes(),
        log_schema_of(nested).encode(),
    ]


def _offset(content: bytes) -> object:
    # Spark parses its checkpoint; what it hands over is any JSON.
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return parse_offset("orders", value)


def _node(name: str, kind: str, *seeds: str, **how: Any) -> Decoder:
    parse: Callable[[str, bytes], object] = getattr(serde, f"parse_{kind}")
    return Decoder(
        name=name,
        decode=partial(parse, "/node"),
        encode=getattr(serde, f"encode_{kind}"),
        errors=(MetadataCorruptError,),
        seeds=lambda: _golden(*(seeds or (kind,))),
        covers=(f"{_AT}.format.serde.parse_{kind}",),
        memory=Bound(96 * 1024, 512),
        **how,
    )


_Row = Callable[..., Decoder]
_name: _Row = partial(Decoder, errors=(ValueError,))

DECODERS: tuple[Decoder, ...] = (
    _node("log-head", "head", "head", "head_that_keeps_all_again", steps=Bound(4_000, 32)),
    _node("log-chunk", "chunk", "chunk", "index_chunk", steps=Bound(4_000, 32)),
    _node("log-token", "token", "token", "token_of_a_patient_job"),
    _node("log-token-child", "token_child"),
    _node("log-txn", "txn"),
    _node("log-cursor", "cursor"),
    _node(
        "log-garbage",
        "garbage",
        "garbage",
        "garbage_truncate",
        "garbage_empty_tail",
        steps=Bound(4_000, 32),
    ),
    _node("log-name", "name"),
    _node("log-schema-node", "schema"),
    Decoder(
        name="log-runs",
        decode=lambda content: runs.parse_runs(7, content).runs,
        encode=lambda found: runs.encode_runs(found, 1 << 20),
        errors=(MetadataCorruptError,),
        seeds=_stored_runs,
        covers=(f"{_AT}.format.runs.parse_runs",),
        memory=Bound(_RUNS_ROOM_BYTES, 512),
        steps=Bound(60_000_000, 100),
    ),
    Decoder(
        name="log-runs-unpacked",
        decode=lambda content: runs.parse_runs(7, b"\1" + zlib.compress(content, 1)).runs,
        errors=(MetadataCorruptError,),
        seeds=lambda: [zlib.decompress(each[1:]) for each in _stored_runs()],
        covers=(f"{_AT}.format.runs.parse_runs",),
        memory=Bound(512 * 1024, 512),
        steps=Bound(4_000, 32),
    ),
    Decoder(
        name="log-schema",
        decode=parse_log_schema,
        encode=lambda found: found.encode(),
        errors=(ValueError,),
        seeds=_schemas,
        covers=("spark_bookkeeper.datasource.schema.parse_log_schema",),
        memory=Bound(256 * 1024, 512),
        steps=Bound(20_000, 100),
    ),
    _name(
        name="log-job-name",
        decode=lambda content: paths.parse_job_name(content.decode()),
        seeds=lambda: [b"query%2Fone@7", b"job-without"],
        covers=(f"{_AT}.nodes.paths.parse_job_name", f"{_AT}.nodes.paths.unescape"),
    ),
    _name(
        name="log-child-name",
        decode=lambda content: paths.parse_child_name(content.decode()),
        seeds=lambda: [b"3-99-1099511627776"],
        covers=(f"{_AT}.nodes.paths.parse_child_name",),
    ),
    _name(
        name="log-chunk-name",
        decode=lambda content: paths.parse_chunk_epoch(content.decode()),
        seeds=lambda: [b"0000000012-3"],
        covers=(f"{_AT}.nodes.paths.parse_chunk_epoch",),
    ),
    Decoder(
        name="stream-offset",
        decode=_offset,
        errors=(OffsetInvalidError,),
        seeds=lambda: [
            b'{"log":3,"row":9}',
            b'{"from":1,"log":3,"row":9}',
            b'{"at":5,"log":3,"start":"row"}',
        ],
        covers=("spark_bookkeeper.datasource.read.offsets.parse_offset",),
        memory=Bound(64 * 1024, 256),
    ),
)
