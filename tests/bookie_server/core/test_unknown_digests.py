"""Duplicates of entries whose digest a bookie does not know: a replica is granted, and nothing else is."""

from __future__ import annotations

import pytest

from bookie_server.core.same_entries import same_entries
from bookie_server.wire.digest import (
    Crc32cDigest,
    Crc32Digest,
    Digest,
    DummyDigest,
    HmacDigest,
)
from bookie_server.wire.record import RECORD_OVERHEAD, Run, parse_run
from tests.doubles.records import records

PAYLOAD = b"a payload of more than twenty bytes"
DIGESTS = (Crc32cDigest(), Crc32Digest(), HmacDigest(b"secret"), DummyDigest())


def entry(digest: Digest, payload: bytes = PAYLOAD, lac: int = 3) -> Run:
    return parse_run(records([payload], 9, digest=digest, lac=lac, length_before=100))


def damaged(run: Run, at: int) -> Run:
    changed = bytearray(run.data)
    changed[at] ^= 1
    return parse_run(bytes(changed))


@pytest.mark.parametrize("digest", DIGESTS)
def test_an_entry_that_is_packaged_anew_is_the_same(digest: Digest) -> None:
    assert same_entries(entry(digest), entry(digest, lac=8), None)


@pytest.mark.parametrize("lac", [3, 8])
@pytest.mark.parametrize("digest", DIGESTS[:3])
def test_another_payload_is_not(digest: Digest, lac: int) -> None:
    for at in (0, 3, 19, 30):
        other = bytearray(PAYLOAD)
        other[at] ^= 1
        assert not same_entries(entry(digest), entry(digest, bytes(other), lac), None)


@pytest.mark.parametrize("digest", DIGESTS[:2])
def test_a_copy_that_is_damaged_is_not(digest: Digest) -> None:
    """Sixteen bytes were not compared, so recovery took a damaged copy for one of the entry."""
    sound = entry(digest, lac=8)
    for at in range(RECORD_OVERHEAD + digest.size, sound.size_bytes):
        assert not same_entries(sound, damaged(entry(digest), at), None)


def test_of_a_ledger_without_digests_what_an_hmac_would_be_is_not_compared() -> None:
    """Where the LAC differs: only recovery packages an entry anew, and whoever adds as a writer is compared in full."""
    first, other = entry(DummyDigest(), b"x" * 20), entry(DummyDigest(), b"y" * 20, lac=8)
    assert same_entries(first, other, None)
    assert not same_entries(first, other, 0)
    assert not same_entries(first, entry(DummyDigest(), b"y" * 20), None)
    short, another = entry(DummyDigest(), b"x" * 19), entry(DummyDigest(), b"y" * 19, lac=8)
    assert not same_entries(short, another, None), "too short for an HMAC"
