"""Records and digests: Apache's bytes, and nothing read that is not there."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookie_server.wire.digest import (
    Crc32cDigest,
    Crc32Digest,
    Digest,
    DummyDigest,
    HmacDigest,
    crc32c,
    digest_for,
    keyless_digest,
    master_key,
)
from bookie_server.wire.limits import ENTRY_SIZE_MAX
from bookie_server.wire.packaging import encode_records
from bookie_server.wire.record import (
    RECORD_OVERHEAD,
    MalformedRecordsError,
    Run,
    first_unverified,
    headers_are_possible,
    parse_header,
    parse_run,
    run_verifies,
    split_records,
)
from bookkeeper_metadata.model import DigestType
from tests.doubles.records import records

# Ledger 7, entry 3, LAC 2, cumulative length 20, payload "hello", password "passwd".
GOLDEN_HEADER = bytes.fromhex("0000000000000007000000000000000300000000000000020000000000000014")
GOLDEN_DIGESTS = {
    DigestType.CRC32: "000000002190aea7",
    DigestType.CRC32C: "e9857074",
    DigestType.HMAC: "0d06f8f9e7a22f7637d22795e76a27f887b57960",
    DigestType.DUMMY: "",
}


@pytest.mark.parametrize("digest_type", list(DigestType))
def test_digests_are_the_ones_apache_computes(digest_type: DigestType) -> None:
    digest = digest_for(digest_type, b"passwd")

    assert digest.compute(GOLDEN_HEADER, b"hello").hex() == GOLDEN_DIGESTS[digest_type]
    assert digest.size == len(GOLDEN_DIGESTS[digest_type]) // 2


def test_a_record_is_length_header_digest_payload() -> None:
    parts = encode_records(Crc32cDigest(), 7, 3, [b"hello"], last_add_confirmed=2, length_before=15)

    expected = (41).to_bytes(4) + GOLDEN_HEADER + bytes.fromhex("e9857074") + b"hello"
    assert b"".join(parts) == expected


def test_crc32c_and_master_keys_match_known_values() -> None:
    assert crc32c(b"Some String") == 608512271
    assert crc32c(b"123456789") == 0xE3069283
    assert master_key(b"").hex() == "850bf1071c5e3d8c24235676f8816ae0cbe2f14f"
    assert master_key(b"passwd").hex() == "9596625852f7fafc2c9cf0f9f7f3e5995206452b"


def test_a_bookie_can_check_every_digest_but_the_keyed_one() -> None:
    assert keyless_digest(DigestType.HMAC) is None
    assert isinstance(keyless_digest(DigestType.CRC32C), Crc32cDigest)


@given(
    st.lists(st.binary(max_size=50), min_size=1, max_size=20),
    st.sampled_from([Crc32cDigest(), Crc32Digest(), HmacDigest(b"k"), DummyDigest()]),
)
def test_what_is_encoded_is_parsed_back(payloads: list[bytes], digest: Digest) -> None:
    run = parse_run(records(payloads, 5, digest=digest))

    assert list(run.entry_ids) == list(range(5, 5 + len(payloads)))
    assert [payload for _, _, payload in split_records(run, digest.size)] == payloads
    assert run_verifies(run, digest)
    lengths = [parse_header(run.data, offset).length for offset in run.offsets]
    assert lengths == [sum(map(len, payloads[: i + 1])) for i in range(len(payloads))]


@given(st.integers(1, 40), st.integers(0, 40), st.data())
def test_uniform_and_mixed_runs_slice_alike(size: int, count: int, data: st.DataObject) -> None:
    payloads = [bytes([i]) * size for i in range(count + 1)]
    uniform = parse_run(records(payloads))
    mixed = Run(7, list(uniform.entry_ids), list(uniform.offsets), uniform.data)
    start = data.draw(st.integers(0, count))
    stop = data.draw(st.integers(start + 1, count + 1))

    for run in (uniform, mixed):
        piece = run.slice(start, stop)
        assert list(piece.entry_ids) == list(range(start, stop))
        assert [p for _, _, p in split_records(piece, 4)] == payloads[start:stop]
        again = run.between(start, stop - 1)
        assert again is not None
        assert bytes(again.data) == bytes(piece.data)
    assert uniform.between(count + 1, count + 5) is None


@given(st.lists(st.binary(max_size=20), min_size=1, max_size=6), st.data())
def test_any_flipped_bit_is_noticed(payloads: list[bytes], data: st.DataObject) -> None:
    encoded = bytearray(records(payloads))
    position = data.draw(st.integers(0, len(encoded) - 1))
    encoded[position] ^= 1 << data.draw(st.integers(0, 7))

    with suppress(MalformedRecordsError):
        assert first_unverified(parse_run(bytes(encoded)), Crc32cDigest()) is not None


@pytest.mark.parametrize(
    "digest", [digest_for(each, b"") for each in DigestType if each is not DigestType.DUMMY]
)
@pytest.mark.parametrize("size", [0, 20, 5_000])
@pytest.mark.parametrize("is_uniform", [True, False])
def test_the_first_that_does_not_verify_is_found_in_runs_of_every_kind(
    digest: Digest, size: int, is_uniform: bool
) -> None:
    payloads = [bytes([each]) * size for each in range(50)]
    if not is_uniform:
        payloads[-1] += b"longer"
    encoded = bytearray(
        b"".join(encode_records(digest, 7, 0, payloads, last_add_confirmed=-1, length_before=0))
    )
    stride = RECORD_OVERHEAD + digest.size + size
    assert first_unverified(parse_run(bytes(encoded)), digest) is None
    for index in (49, 31, 0):
        # The last byte of its digest.
        encoded[index * stride + RECORD_OVERHEAD + digest.size - 1] ^= 1
        assert first_unverified(parse_run(bytes(encoded)), digest) == index


@given(st.lists(st.binary(max_size=20), min_size=1, max_size=6), st.data())
def test_a_truncated_run_never_parses_to_all_its_records(
    payloads: list[bytes], data: st.DataObject
) -> None:
    encoded = records(payloads)
    cut = encoded[: data.draw(st.integers(0, len(encoded) - 1))]

    with suppress(MalformedRecordsError):
        assert len(parse_run(cut)) < len(payloads)


@pytest.mark.parametrize("length", [-1, 0, 31, ENTRY_SIZE_MAX + 1, 2**31 - 1])
def test_an_impossible_record_length_is_refused(length: int) -> None:
    encoded = bytearray(records([b"x", b"yy"]))
    encoded[0:4] = length.to_bytes(4, signed=True)

    with pytest.raises(MalformedRecordsError):
        parse_run(bytes(encoded))


def test_records_of_two_ledgers_or_out_of_order_are_no_run() -> None:
    with pytest.raises(MalformedRecordsError, match="follows"):
        parse_run(records([b"a"], first_entry=4) + records([b"bb"], first_entry=4))
    other = bytearray(records([b"bb"], first_entry=5))
    other[4:12] = (8).to_bytes(8)
    with pytest.raises(MalformedRecordsError, match="ledger 8"):
        parse_run(records([b"a"], first_entry=4) + bytes(other))


def test_a_striped_run_keeps_its_gaps() -> None:
    run = parse_run(records([b"a"], first_entry=1) + records([b"b"], first_entry=4))

    assert list(run.entry_ids) == [1, 4]
    assert run.between(2, 3) is None


COUNTS = (2, 3, 24, 25, 100)
"""Few records are looked at one by one, many as a table."""


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("which", ["second", "last"])
def test_records_of_one_size_are_a_run_of_ranges_only_if_ids_and_ledger_say_so(
    count: int, which: str
) -> None:
    payloads = [b"x"] * count
    at = 1 if which == "second" else count - 1
    whole = records(payloads)
    size = len(whole) // count
    assert isinstance(parse_run(whole).offsets, range)

    before, behind = whole[: at * size], whole[(at + 1) * size :]
    with pytest.raises(MalformedRecordsError, match="ledger 8"):
        parse_run(before + records([b"x"], at, ledger_id=8) + behind)
    with pytest.raises(MalformedRecordsError, match="follows"):
        parse_run(before + records([b"x"], at - 1) + behind)
    # A gap is no mistake, and only the last can have one without another behind it.
    with_gap = before + records([b"x"], at + 1) + behind
    if at == count - 1:
        assert list(parse_run(with_gap).entry_ids) == [*range(at), at + 1]
    else:
        with pytest.raises(MalformedRecordsError, match="follows"):
            parse_run(with_gap)


@pytest.mark.parametrize("count", COUNTS)
def test_a_header_that_no_writer_makes_is_found_among_few_and_many(count: int) -> None:
    size = len(records([b"x"] * count)) // count

    def with_last(lac: int, length_before: int) -> Run:
        last = records([b"x"], count - 1, lac=lac, length_before=length_before)
        return parse_run(records([b"x"] * count)[: -len(last)] + last)

    assert size * count == with_last(count - 2, 0).size_bytes
    for may_know_itself in (False, True):
        possible = partial(headers_are_possible, may_know_itself=may_know_itself)
        assert possible(with_last(count - 2, 0))
        assert possible(with_last(count - 1, 0)) is may_know_itself
        assert not possible(with_last(-2, 0))
        assert not possible(with_last(-1, -2))
