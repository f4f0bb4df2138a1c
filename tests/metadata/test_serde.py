"""Metadata bytes are Apache's, and bytes that are not metadata are an error with a reason."""

from __future__ import annotations

import base64
import contextlib
import traceback
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bookkeeper_metadata.errors import MetadataCorruptError
from bookkeeper_metadata.model import DigestType, Fragment, LedgerMetadata, LedgerState
from bookkeeper_metadata.serde import encode_metadata, parse_metadata
from tests.metadata.samples import ENSEMBLE, ledgers, open_ledger

# From Apache's own LedgerMetadataSerDe test.
APACHE_V3 = base64.b64decode(
    "Qm9va2llTWV0YWRhdGFGb3JtYXRWZXJzaW9uCTMKYAgCEAMYACD///////////8BKAEyMgoOMTkyLjAuMi4xOjMxODEK"
    "DjE5Mi4wLjIuMjozMTgxCg4xOTIuMC4yLjM6MzE4MRAAOANCBmZvb2JhckgBUP///////////wFgAA=="
)
APACHE_SAYS = open_ledger(write_quorum=2, ack_quorum=1, password=b"foobar")
V2 = b"""BookieMetadataFormatVersion\t2
quorumSize: 2
ensembleSize: 2
length: 20
lastEntryId: 4
state: CLOSED
segment {
  ensembleMember: "192.0.2.1:3181"
  ensembleMember: "192.0.2.2:3181"
  firstEntryId: 0
}
digestType: HMAC
password: "pw\\000"
"""


@pytest.mark.conformance("M1")
def test_a_value_written_by_apache_is_understood() -> None:
    assert parse_metadata(APACHE_V3, "/l") == APACHE_SAYS


def test_our_bytes_are_apaches_but_for_a_creation_time_nobody_knows() -> None:
    # given Apache's value, whose only oddity is a creation time of -1 (ten bytes, field 10)
    ctime = b"\x50" + b"\xff" * 9 + b"\x01"
    assert ctime in APACHE_V3

    without = APACHE_V3.replace(ctime, b"").replace(b"\t3\n\x60", b"\t3\n\x55")
    assert encode_metadata(APACHE_SAYS) == without


def test_a_closed_ledger_with_everything_set_has_exactly_these_bytes() -> None:
    metadata = LedgerMetadata(
        ensemble_size=1,
        write_quorum=1,
        ack_quorum=1,
        fragments=(Fragment(0, ("b:1",)), Fragment(300, ("c:1",))),
        state=LedgerState.CLOSED,
        last_entry=300,
        length=5,
        digest_type=DigestType.HMAC,
        password=b"",
        custom_metadata={"b": b"2", "a": b"1"},
        created_ms=1,
        writer_token=9,
    )
    assert encode_metadata(metadata).hex(" ", -4) == (
        bytes("BookieMetadataFormatVersion\t3\n", "ascii")
        + bytes.fromhex(
            "38 0801 1001 1805 20ac02 2803 3207 0a03623a31 1000 3208 0a03633a31 10ac02"
            "3802 4200 4801 5001 5a06 0a0162 120132 5a06 0a0161 120131 6009"
        )
    ).hex(" ", -4)


@pytest.mark.parametrize("keys", ["ab", "ba"])
def test_custom_metadata_of_others_keep_their_order(keys: str) -> None:
    """Java writes them in the order of their hashes; an update of ours changes nothing but what it means to."""
    metadata = replace(APACHE_SAYS, custom_metadata={key: key.encode() for key in keys})
    stored = encode_metadata(metadata)
    parsed = parse_metadata(stored, "/l")
    assert list(parsed.custom_metadata) == list(keys)
    assert encode_metadata(parsed) == stored


@settings(deadline=None)  # the first example pays for what is loaded lazily
@given(ledgers())
def test_whatever_a_ledger_can_be_comes_back_the_same(metadata: LedgerMetadata) -> None:
    assert parse_metadata(encode_metadata(metadata), "/l") == metadata


@given(st.binary(max_size=80), st.sampled_from([b"", APACHE_V3[:30], APACHE_V3[:40]]))
@pytest.mark.conformance("M1")
def test_arbitrary_bytes_are_never_half_understood(tail: bytes, head: bytes) -> None:
    with contextlib.suppress(MetadataCorruptError):
        metadata = parse_metadata(head + tail, "/l")

        assert parse_metadata(encode_metadata(metadata), "/l") == metadata


@pytest.mark.conformance("M1")
def test_version_two_is_the_same_message_as_text() -> None:
    metadata = parse_metadata(V2, "/l")
    assert metadata.fragments == (Fragment(0, ENSEMBLE[:2]),)
    assert (metadata.state, metadata.last_entry, metadata.length) == (LedgerState.CLOSED, 4, 20)
    assert (metadata.ack_quorum, metadata.digest_type) == (2, DigestType.HMAC)
    assert (metadata.password, metadata.created_ms, metadata.writer_token) == (b"pw\0", -1, 0)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "does not begin"),
        (b"BookieMetadataFormatVersion\t1\n2\n3\n0\n0\ta:1\n", "version 1 is not supported"),
        (b"BookieMetadataFormatVersion\t4\n", "version 4 is not supported"),
        (b"BookieMetadataFormatVersion\t12345678901\n", "does not begin"),
        (b"BookieMetadataFormatVersion\t3\n", "ends within its length"),
        (APACHE_V3[:-1], "length says 96 bytes, 95 are there"),
        (APACHE_V3 + b"\0", "length says 96 bytes, 97 are there"),
        (b"BookieMetadataFormatVersion\t3\n\x02\x08\x01", "required fields are missing"),
        (APACHE_V3.replace(b"\x38\x03", b"\x38\x09"), "unknown digest type"),
        (APACHE_V3.replace(b"\x28\x01", b"\x28\x09"), "required fields are missing"),
        (APACHE_V3.replace(b"192.0.2.1", b"192.0.2.2"), "a bookie stands twice"),
        (APACHE_V3.replace(b"192.0.2.1", b"192.0.2\xff1"), "UTF-8|utf-8"),
        (APACHE_V3.replace(b"\x08\x02\x10\x03", b"\x08\x04\x10\x03"), "quorums must satisfy"),
        (V2.replace(b"quorumSize", b"quoromSize", 1), "line 1, column 1"),
    ],
)
@pytest.mark.conformance("M1")
def test_what_is_no_metadata_is_refused_with_the_reason(value: bytes, reason: str) -> None:
    with pytest.raises(MetadataCorruptError, match=reason):
        parse_metadata(value, "/l")


def test_a_text_that_is_damaged_is_told_without_its_password() -> None:
    text = V2 + b'password: "secret'
    with pytest.raises(MetadataCorruptError) as refused:
        parse_metadata(text, "/l")
    assert "secret" not in "".join(traceback.format_exception(refused.value))


def test_an_open_ledgers_end_is_ignored_as_apache_does() -> None:
    value = APACHE_V3.replace(b"\x18\x00", b"\x18\x07")
    value = value.replace(b"\x20" + b"\xff" * 9 + b"\x01", b"\x20\x09")
    value = value.replace(b"\t3\n\x60", b"\t3\n\x57")

    metadata = parse_metadata(value, "/l")
    assert (metadata.length, metadata.last_entry) == (0, -1)
