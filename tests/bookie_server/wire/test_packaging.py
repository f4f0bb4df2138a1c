"""Payloads become the records of the layout, however many there are and whatever they have in common."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookie_server.wire.digest import Digest, digest_for
from bookie_server.wire.packaging import PARTS_PER_RECORD, encode_records
from bookie_server.wire.record import parse_run, run_verifies
from bookkeeper_metadata.model import ENTRY_ID_MAX, DigestType

DIGESTS = {each.name: digest_for(each, b"secret") for each in DigestType}
PAYLOADS = st.one_of(
    st.lists(st.binary(max_size=9), max_size=120),
    # Of one size, among them none at all.
    st.integers(0, 9).flatmap(
        lambda size: st.lists(st.binary(min_size=size, max_size=size), min_size=35, max_size=120)
    ),
)


def expected(
    digest: Digest, ledger_id: int, first_entry: int, payloads: list[bytes], lac: int, length: int
) -> list[bytes]:
    """The records one by one, as the layout says."""
    records = []
    for entry_id, payload in enumerate(payloads, first_entry):
        length += len(payload)
        header = struct.pack(">qqqq", ledger_id, entry_id, lac, length)
        entry = header + digest.compute(header, payload) + payload
        records.append(struct.pack(">i", len(entry)) + entry)
    return records


@pytest.mark.parametrize("digest", DIGESTS.values(), ids=DIGESTS)
@given(
    ledger_id=st.integers(0, (1 << 63) - 1),
    first_entry=st.integers(0, ENTRY_ID_MAX - 200),
    payloads=PAYLOADS,
    lac=st.integers(-1, (1 << 63) - 1),
    length=st.integers(0, (1 << 62)),
)
def test_records_are_those_of_the_layout(
    digest: Digest, ledger_id: int, first_entry: int, payloads: list[bytes], lac: int, length: int
) -> None:
    parts = encode_records(
        digest, ledger_id, first_entry, payloads, last_add_confirmed=lac, length_before=length
    )
    records = [
        b"".join(parts[at : at + PARTS_PER_RECORD]) for at in range(0, len(parts), PARTS_PER_RECORD)
    ]
    assert records == expected(digest, ledger_id, first_entry, payloads, lac, length)


@pytest.mark.parametrize("digest", DIGESTS.values(), ids=DIGESTS)
@pytest.mark.parametrize("count", [1, 40, 41, 5_000])
def test_what_was_packaged_is_a_run_that_verifies(digest: Digest, count: int) -> None:
    parts = encode_records(
        digest, 7, 3, [b"payload"] * count, last_add_confirmed=2, length_before=11
    )
    run = parse_run(b"".join(parts))
    assert run.entry_ids == range(3, 3 + count)
    assert run_verifies(run, digest)


@pytest.mark.parametrize("count", [3, 300])
@pytest.mark.parametrize(
    ("first_entry", "length"), [((1 << 63) - 2, 0), (0, (1 << 63) - 2)], ids=["ids", "length"]
)
def test_what_no_header_can_say_is_refused(count: int, first_entry: int, length: int) -> None:
    with pytest.raises(struct.error):
        encode_records(
            *(DIGESTS["CRC32C"], 7, first_entry, [b"payload"] * count),
            last_add_confirmed=2,
            length_before=length,
        )


@pytest.mark.parametrize("count", [3, 300])
def test_payloads_may_be_views(count: int) -> None:
    digest, payload = DIGESTS["CRC32C"], b"payload"
    views = [memoryview(payload)] * count
    parts = encode_records(digest, 7, 3, views, last_add_confirmed=2, length_before=0)  # type: ignore[arg-type]
    assert b"".join(parts) == b"".join(expected(digest, 7, 3, [payload] * count, 2, 0))
