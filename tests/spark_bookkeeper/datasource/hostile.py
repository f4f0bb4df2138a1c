"""Feeds damaged entries and footers to the decoders; run as a process, so that a crash is seen.

``python -m tests.spark_bookkeeper.datasource.hostile`` prints one line of JSON: cases, how many were
refused, and the most memory Arrow and the process held. Any exception but a refusal ends it.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from spark_bookkeeper.datasource.errors import PayloadCorruptError, RowsMissingError
from spark_bookkeeper.datasource.payload.codec import Decoder, decoder_of, encoder_of
from spark_bookkeeper.datasource.payload.entry_cutter import CutEntry
from spark_bookkeeper.datasource.payload.footer import FooterBuilder, parse_footer
from tests.spark_bookkeeper.datasource.rows import everything
from tests.spark_bookkeeper.datasource.world import FakeSpark, many_entries

ROWS = 40
Damage = tuple[Any, ...]
"""What is done to a payload, where, and with what."""
counts: Counter[str] = Counter()


def place(payload: bytes, at: int) -> int:
    """Where damage goes: half of it where most of the harm is, in envelope and metadata."""
    return at % len(payload) if at % 2 else at % min(2_500, len(payload))


def flipped(payload: bytes, at: int, octet: int) -> bytes:
    return overwritten(payload, at, bytes([payload[place(payload, at)] ^ octet]))


def overwritten(payload: bytes, at: int, octets: bytes) -> bytes:
    start = place(payload, at)
    return (payload[:start] + octets + payload[start + len(octets) :])[: len(payload)]


def inserted(payload: bytes, at: int, octets: bytes) -> bytes:
    start = place(payload, at)
    return payload[:start] + octets + payload[start:]


def deleted(payload: bytes, at: int, count: int) -> bytes:
    start = place(payload, at)
    return payload[:start] + payload[start + count :]


def truncated(payload: bytes, at: int) -> bytes:
    return payload[: at % len(payload)]


PLACES = st.integers(0, 1 << 30)
NUMBERS = st.sampled_from(
    [
        value.to_bytes(size, "little", signed=True)
        for size in (4, 8)
        for value in (-1, 0, 1, 1 << 30, (1 << (8 * size - 1)) - 1, -(1 << (8 * size - 1)))
    ]
)
DAMAGES = st.lists(
    st.one_of(
        st.tuples(st.just(flipped), PLACES, st.integers(1, 255)),
        st.tuples(st.just(overwritten), PLACES, NUMBERS),
        st.tuples(st.just(inserted), PLACES, st.binary(min_size=1, max_size=9)),
        st.tuples(st.just(deleted), PLACES, st.integers(1, 9)),
        st.tuples(st.just(truncated), PLACES),
    ),
    min_size=1,
    max_size=3,
)
CALM = settings(
    deadline=None,
    database=None,
    derandomize=True,
    phases=(Phase.generate,),
    suppress_health_check=list(HealthCheck),
)


def damaged(payload: bytes, damages: list[Damage]) -> bytes:
    for damage, *how in damages:
        payload = damage(payload, *how) or b"\0"
    return payload


def refused(what: str, named: object, place: object) -> None:
    """Count a refusal; it names the place of what was damaged."""
    assert named == place
    counts[f"{what}_refused"] += 1


def fuzz_entries(cases: int) -> None:
    batch = everything(ROWS)
    kinds: list[tuple[bytes, Decoder]] = []
    for name in ("zstd", "lz4", "none", "avro"):
        payload_format, compression = ("avro", "none") if name == "avro" else ("arrow", name)
        payload = encoder_of(payload_format, batch.schema, 0, compression).encode(batch, 0, 0)
        for columns in (None, ["text", "nested", "pairs"], []):
            kinds.append((payload, decoder_of(payload_format, batch.schema, columns)))

    @settings(CALM, max_examples=cases)
    @given(st.sampled_from(kinds), DAMAGES)
    def run(kind: tuple[bytes, Decoder], damages: list[Damage]) -> None:
        payload, decoder = kind
        counts["entries"] += 1
        try:
            envelope, found = decoder.decode(1, 2, damaged(payload, damages))
        except PayloadCorruptError as error:
            refused("entries", (error.ledger_id, error.entry_id), (1, 2))
            return
        assert found.num_rows == envelope.rows
        found.validate(full=True)
        # Copies every value, as handing it to Spark does.
        found.take(pa.array(range(found.num_rows), pa.int64()))

    run()


def fuzz_footers(cases: int) -> None:
    batch = everything(ROWS)
    builder = FooterBuilder(batch.schema, 8)
    for at in range(50):
        builder.add(CutEntry(b"", batch, at * ROWS))
    payload = builder.encode(0, 0)
    assert payload is not None

    @settings(CALM, max_examples=cases)
    @given(DAMAGES)
    def run(damages: list[Damage]) -> None:
        assert payload is not None
        counts["footers"] += 1
        try:
            found = parse_footer(1, 50, damaged(payload, damages))
        except PayloadCorruptError as error:
            refused("footers", (error.ledger_id, error.entry_id), (1, 50))
            return
        assert found is None or len(found.first_rows) == 50

    run()


def fuzz_reads(cases: int) -> None:
    """Whole reads of a log of which one payload is damaged: all rows, or an error that names it."""
    world = FakeSpark()
    ledger = many_entries(world, partitions=1)
    sound = list(ledger.payloads)
    rows = world.read().num_rows
    places = [{}, {"startingoffsets": '{"row":100}'}, {"ledger": "0"}]

    @settings(CALM, max_examples=cases)
    @given(st.integers(0, len(sound) - 1), DAMAGES, st.sampled_from(places))
    def run(at: int, damages: list[Damage], options: dict[str, str]) -> None:
        counts["reads"] += 1
        ledger.payloads[:] = sound
        ledger.payloads[at] = damaged(sound[at], damages)
        try:
            found = world.read(None, filters=(), **options)
        except (PayloadCorruptError, RowsMissingError) as error:
            refused("reads", error.ledger_id, 0)
        else:
            wanted = rows - 100 if "startingoffsets" in options else rows
            # By its id, nobody says how many rows there should be.
            assert found.num_rows == wanted or "ledger" in options

    run()
    world.client.close()


def _rss_bytes_max() -> int:
    """The most memory this process had; its rusage would count its parent's, at the fork, too."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(re.findall(r"VmHWM:\s*(\d+)", status)[0]) * 1024


def main(cases: int) -> None:
    fuzz_entries(cases)
    fuzz_footers(cases)
    fuzz_reads(cases // 4)
    arrow_bytes = pa.default_memory_pool().max_memory()
    report = {**counts, "arrow_bytes": arrow_bytes, "rss_bytes": _rss_bytes_max()}
    sys.stdout.write(json.dumps(report) + "\n")


if __name__ == "__main__":
    main(int(sys.argv[1]))
