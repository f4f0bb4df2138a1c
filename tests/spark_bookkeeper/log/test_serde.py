"""Bytes of a log's znodes: versions 1 and 2 as released, for ever."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper_metadata.errors import MetadataCorruptError
from spark_bookkeeper.log.format import serde
from spark_bookkeeper.log.format.columns import BOUND_BYTES_MAX, ColumnRange, Scalar
from spark_bookkeeper.log.format.epoch import Job, StoredTxn, Token, TokenChild, TokenState, Txn
from spark_bookkeeper.log.format.model import (
    Chunk,
    ChunkRef,
    Cursor,
    Garbage,
    GarbageReason,
    LedgerRange,
    LogHead,
    LogSettings,
    OpenLedger,
    Retention,
)
from spark_bookkeeper.log.nodes.paths import (
    LogPaths,
    check_log_name,
    escape,
    job_name,
    parse_child_name,
    parse_job_name,
    unescape,
)

GOLDEN = Path("tests/golden/v1/log")
GOLDEN_2 = Path("tests/golden/v2/log")

COLUMNS = (
    ColumnRange("flag", False, True),
    ColumnRange("id", -5, 2**62, 3),
    ColumnRange("price", -0.5, 1e300),
    ColumnRange("name", "a", "zürich"),
    ColumnRange("blob", b"\x00", b"\xff"),
    ColumnRange("total", Decimal("-1.10"), Decimal("99999999999999999999.99")),
    ColumnRange("day", date(1, 1, 1), date(9999, 12, 31)),
    ColumnRange("at", datetime(1969, 12, 31, 23, tzinfo=UTC), datetime(2030, 1, 1, tzinfo=UTC)),
    ColumnRange("local", datetime(1500, 1, 1), datetime(2030, 1, 1, 1, 2, 3, 4)),  # noqa: DTZ001
    ColumnRange("unknown", None, None, 7),
)
RANGE = LedgerRange(2**40, 0, 41, 30, 12, 5_000, 1, 1_700_000_000_000, COLUMNS)
REF = ChunkRef(12, 3, 0, 10, 20, 4, 9_000, 1_690_000_000_000)
GARBAGE = Garbage(GarbageReason.OVERWRITE, 1_700_000_000_000, (REF,), (RANGE,))
EMPTY = LedgerRange(2**40, 0, -1, 42, 0, 0, 1, 1_690_000_000_000)
VALUES: dict[str, object] = {
    "head": LogHead(
        name="orders",
        settings=LogSettings(compression="lz4"),
        base_row=10,
        next_row=42,
        overwritten_row=10,
        schema_id=1,
        last_commit_ms=1_700_000_000_000,
        chunks=(REF,),
        ranges=(RANGE,),
        open_ledger=OpenLedger(77, 42, 1_700_000_000_001),
    ),
    "chunk": Chunk(0, ranges=(RANGE,)),
    "index_chunk": Chunk(1, chunks=(REF,)),
    "token": Token(
        state=TokenState.COMMITTED, job="q@7", txn=Txn("q", 7), created_ms=5, changed_ms=6
    ),
    "token_of_a_patient_job": Token(job="b", created_ms=5, timeout_ms=86_400_000),
    "token_child": TokenChild(3, 99, 2**40),
    "txn": StoredTxn(7, "query-1", 12, 1_700_000_000_000),
    "garbage": GARBAGE,
    "garbage_kept_at_no_time": replace(GARBAGE, retention_ms=0),
    "garbage_truncate": replace(GARBAGE, reason=GarbageReason.TRUNCATE),
    "garbage_empty_tail": Garbage(GarbageReason.EMPTY_TAIL, 1_700_000_000_000, ranges=(EMPTY,)),
    "cursor": Cursor(42, 1_700_000_000_000, 7 * 86_400_000),
    "name": 2**62 + 1,
    "schema": b"\x00schema",
}
REWRITTEN = replace(RANGE, first_commit_ms=1_600_000_000_000)
VALUES_2: dict[str, object] = {
    "head": LogHead(
        name="orders",
        settings=LogSettings(),
        base_row=30,
        next_row=42,
        ranges=(REWRITTEN,),
        retention=Retention(time_ms=604_800_000, size_bytes=0, is_consumed_kept=True),
        format_version=2,
    ),
    "head_that_keeps_all_again": LogHead(name="o", settings=LogSettings(), format_version=2),
    "chunk": Chunk(0, ranges=(RANGE, replace(REWRITTEN, first_row=42, first_commit_ms=0))),
    "garbage": Garbage(GarbageReason.REWRITE, 1_700_000_000_000, (REF,), (REWRITTEN,), 0),
}
CODECS: dict[type, tuple[Callable[..., bytes], Callable[[str, bytes], object]]] = {
    LogHead: (serde.encode_head, serde.parse_head),
    Chunk: (serde.encode_chunk, serde.parse_chunk),
    Token: (serde.encode_token, serde.parse_token),
    TokenChild: (serde.encode_token_child, serde.parse_token_child),
    StoredTxn: (serde.encode_txn, serde.parse_txn),
    Garbage: (serde.encode_garbage, serde.parse_garbage),
    Cursor: (serde.encode_cursor, serde.parse_cursor),
    int: (serde.encode_name, serde.parse_name),
    bytes: (serde.encode_schema, serde.parse_schema),
}


@pytest.mark.parametrize("kind", VALUES)
def test_version_1_is_written_and_read_as_released(kind: str) -> None:
    value = VALUES[kind]
    encode, parse = CODECS[type(value)]
    golden = bytes.fromhex((GOLDEN / f"{kind}.hex").read_text())

    assert encode(value) == golden
    assert parse("/node", golden) == value


@pytest.mark.parametrize("kind", VALUES_2)
def test_version_2_is_written_and_read_as_released(kind: str) -> None:
    value = VALUES_2[kind]
    encode, parse = CODECS[type(value)]
    golden = bytes.fromhex((GOLDEN_2 / f"{kind}.hex").read_text())

    assert golden[:2] == b"\x08\x02"
    assert encode(value) == golden
    assert parse("/node", golden) == value


@pytest.mark.parametrize("kind", VALUES)
def test_unknown_version_and_damage_are_told_with_their_node(kind: str) -> None:
    encode, parse = CODECS[type(VALUES[kind])]
    good = encode(VALUES[kind])
    assert good[:2] == b"\x08\x01"

    for bad in (b"\x08\x03" + good[2:], b"", b"\xff\xff\xff"):
        with pytest.raises(MetadataCorruptError, match="path=/node"):
            parse("/node", bad)


def test_head_that_breaks_its_rules_is_corrupt() -> None:
    good = serde.encode_head(LogHead(name="o", settings=LogSettings(), base_row=5, next_row=5))
    broken = good.replace(b"\x28\x05", b"\x28\x06")

    with pytest.raises(MetadataCorruptError, match="base_row"):
        serde.parse_head("/head", broken)


def test_only_wanted_columns_are_kept() -> None:
    value = serde.encode_chunk(Chunk(0, ranges=(RANGE,)))

    assert serde.parse_chunk("/c", value, {"id"}).ranges[0].columns == (COLUMNS[1],)
    assert serde.parse_chunk("/c", value, ()).ranges[0].columns == ()


@given(st.lists(st.one_of(st.text(max_size=200), st.binary(max_size=200)), min_size=1))
def test_shortened_bounds_still_bound(values: list[str | bytes]) -> None:
    texts = [value for value in values if isinstance(value, str)]
    blobs = [value for value in values if isinstance(value, bytes)]

    for found in (texts, blobs):
        if found:
            kept = ColumnRange("c", min(found), max(found)).bounded()
            for value in found:
                assert kept.minimum is not None
                assert kept.minimum <= value  # type: ignore[operator]
                assert kept.maximum is None or value <= kept.maximum  # type: ignore[operator]
            for bound in (kept.minimum, kept.maximum):
                assert bound is None or size_of(bound) <= BOUND_BYTES_MAX + 3


def size_of(bound: Scalar) -> int:
    return len(bound.encode() if isinstance(bound, str) else bytes(bound))  # type: ignore[arg-type]


@pytest.mark.parametrize("filler", ["\U0010ffff", "\ud7ff", b"\xff"])
def test_greatest_possible_bound_becomes_unknown_or_skips_surrogates(filler: str | bytes) -> None:
    value = filler * 100

    kept = ColumnRange("c", value, value).bounded()

    assert kept.maximum is None or kept.maximum > value  # type: ignore[operator]
    assert (kept.maximum is None) == (filler != "\ud7ff")


def test_nan_bounds_nothing() -> None:
    with pytest.raises(ValueError, match="NaN"):
        ColumnRange("c", float("nan"), None)


@given(st.text(min_size=1, max_size=50))
def test_escaped_ids_are_one_component_and_come_back(text: str) -> None:
    component = escape(text)

    assert unescape(component) == text
    assert "/" not in component
    assert component not in (".", "..")
    assert all(character.isprintable() and ord(character) < 128 for character in component)


def test_ids_that_cannot_be_escaped_are_refused() -> None:
    for text in ("", "\ud800"):
        with pytest.raises(ValueError, match="id must"):
            escape(text)


@given(st.text(min_size=1, max_size=40), st.integers(0, 2**63 - 1))
def test_job_names_tell_their_transaction(app_id: str, version: int) -> None:
    job = Job.of_batch("ignored", Txn(app_id, version))

    assert parse_job_name(job_name(job)) == Txn(app_id, version)
    assert parse_job_name(job_name(Job.of_batch(app_id))) is None


def test_child_names_tell_their_ledger() -> None:
    child = TokenChild(3, 99, 2**40)

    assert parse_child_name(child.name) == child


@pytest.mark.parametrize("name", ["", "a/b", ".", "..", "a/", " a", "a ", "x" * 256, "a\n", "ä"])
def test_names_no_log_may_have(name: str) -> None:
    with pytest.raises(ValueError, match="log name"):
        check_log_name(name)


def test_tree_of_a_log() -> None:
    paths = LogPaths("/ledgers")

    assert paths.name("orders") == "/ledgers-logs/names/orders"
    assert paths.log(7).token(12) == "/ledgers-logs/7/tokens/0000000012"
    assert paths.log(7).txn("a/b") == "/ledgers-logs/7/txn/a%2Fb"
    assert paths.log(7).job_epoch("q@1", 12) == "/ledgers-logs/7/jobs/q@1/0000000012"
