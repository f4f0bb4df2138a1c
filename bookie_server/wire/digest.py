"""Entry digests: computed once by the writer, checked at every hop that can.

The digest covers an entry's 32 header bytes and its payload, so bytes of one entry can never pass
for another's. CRC-32C and CRC-32 need no secret, so bookies check them too; HMAC-SHA1 is keyed by
the ledger password and only clients can check it; DUMMY checks nothing.
Source: Apache ``DigestManager`` and its subclasses; golden vectors in tests/bookie_server/wire.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

import numpy as np
from google_crc32c import extend as crc32c_extend
from google_crc32c import value as crc32c_value

from bookie_server.wire.buffer import Buffer
from bookkeeper_metadata.model import DigestType

MASTER_KEY_SIZE = 20


def crc32c(data: bytes) -> int:
    """CRC-32C (Castagnoli) of ``data``: the checksum of all our own formats."""
    return int(crc32c_value(data))


def crc32c_of(buffer: Buffer | np.ndarray, checksum: int = 0) -> int:
    """CRC-32C of ``buffer`` behind ``checksum``, without copying memoryviews.

    The C library refuses memoryviews but takes numpy arrays over the same memory.
    """
    if not isinstance(buffer, bytes):
        buffer = np.frombuffer(buffer, np.uint8)
    return int(crc32c_extend(checksum, buffer))


def same_key(one: Buffer, other: Buffer) -> bool:
    """Whether two master keys are the same; the time it takes tells nothing of how much of one is right."""
    return hmac.compare_digest(one, other)


def master_key(password: bytes) -> bytes:
    """The key a bookie binds to a ledger at its first add or fence: SHA-1 of "ledger" + password.

    An integrity token against mistakes, not a secret: it is derivable from the metadata.
    Source: Apache ``MacDigestManager.genDigest("ledger", password)``.
    """
    return hashlib.sha1(b"ledger" + password, usedforsecurity=False).digest()


class Digest(ABC):
    """Computes and checks the digests of one ledger's entries."""

    type: DigestType
    size: int
    """Bytes the digest takes between header and payload."""

    @abstractmethod
    def compute(self, header: bytes, payload: Buffer) -> bytes:
        """The ``size`` bytes stored after ``header``."""

    def compute_all(self, headers: Iterable[tuple[bytes]], payloads: Iterable[bytes]) -> bytes:
        """The digests of many entries, back to back."""
        pairs = zip(headers, payloads, strict=True)
        return b"".join([self.compute(header, payload) for (header,), payload in pairs])

    def verifies(self, header: bytes, stored: bytes, payload: Buffer) -> bool:
        """Whether ``stored`` is the digest of ``header`` and ``payload``."""
        return hmac.compare_digest(self.compute(header, payload), stored)

    def first_unverified(self, entries: Iterable[tuple[bytes, bytes, Buffer]]) -> int | None:
        """Index of the first of ``(header, stored, payload)`` that does not verify; ``None`` when all do."""
        for index, entry in enumerate(entries):
            if not self.verifies(*entry):
                return index
        return None

    @property
    def format(self) -> str:
        """How ``struct`` is to unpack a stored digest for :meth:`first_unverified_unpacked`."""
        return f"{self.size}s"

    def first_unverified_unpacked(self, entries: Iterable[tuple[bytes, Any, bytes]]) -> int | None:
        """As :meth:`first_unverified`, of entries that were unpacked by :attr:`format`."""
        return self.first_unverified(entries)


class Crc32cDigest(Digest):
    """Four bytes, the default."""

    type = DigestType.CRC32C
    size = 4
    _pack = struct.Struct(">I").pack

    def compute(self, header: bytes, payload: Buffer) -> bytes:
        return self._pack(crc32c_of(payload, crc32c_value(header)))

    def compute_all(self, headers: Iterable[tuple[bytes]], payloads: Iterable[bytes]) -> bytes:
        # Every entry that a client writes passes here, so nothing is called but what computes.
        extend, value = crc32c_extend, crc32c_value
        pairs = zip(headers, payloads, strict=True)
        sums = [
            extend(
                value(header),
                payload if type(payload) is bytes else np.frombuffer(payload, np.uint8),
            )
            for (header,), payload in pairs
        ]
        return struct.pack(f">{len(sums)}I", *sums)

    def first_unverified(self, entries: Iterable[tuple[bytes, bytes, Buffer]]) -> int | None:
        # Every entry that a bookie takes passes here, or below, so nothing is called but what computes.
        extend, value, pack = crc32c_extend, crc32c_value, self._pack
        for index, (header, stored, payload) in enumerate(entries):
            data = payload if type(payload) is bytes else np.frombuffer(payload, np.uint8)
            # There is no secret to guard: a plain comparison does.
            if pack(extend(value(header), data)) != stored:
                return index
        return None

    @property
    def format(self) -> str:
        return "I"

    def first_unverified_unpacked(self, entries: Iterable[tuple[bytes, Any, bytes]]) -> int | None:
        extend, value = crc32c_extend, crc32c_value
        for index, (header, stored, payload) in enumerate(entries):
            if extend(value(header), payload) != stored:
                return index
        return None


class Crc32Digest(Digest):
    """Eight bytes: zlib's CRC-32, zero-extended as Java's ``long`` is."""

    type = DigestType.CRC32
    size = 8
    _pack = struct.Struct(">Q").pack

    def compute(self, header: bytes, payload: Buffer) -> bytes:
        return self._pack(zlib.crc32(payload, zlib.crc32(header)))


class HmacDigest(Digest):
    """Twenty bytes: HMAC-SHA1 under SHA-1 of "mac" + password."""

    type = DigestType.HMAC
    size = 20

    def __init__(self, password: bytes) -> None:
        self._key = hashlib.sha1(b"mac" + password, usedforsecurity=False).digest()

    def compute(self, header: bytes, payload: Buffer) -> bytes:
        return hmac.digest(self._key, b"".join((header, payload)), "sha1")


class DummyDigest(Digest):
    """No bytes at all; every entry verifies."""

    type = DigestType.DUMMY
    size = 0

    def compute(self, header: bytes, payload: Buffer) -> bytes:
        return b""


def digest_for(digest_type: DigestType, password: bytes) -> Digest:
    """The digest with which a client computes and checks its ledger's entries."""
    match digest_type:
        case DigestType.CRC32C:
            return Crc32cDigest()
        case DigestType.CRC32:
            return Crc32Digest()
        case DigestType.HMAC:
            return HmacDigest(password)
        case DigestType.DUMMY:
            return DummyDigest()


def size_of(digest_type: DigestType | None) -> int | None:
    """Bytes that digests of this type take; ``None`` of one that is not known."""
    return _SIZES[digest_type] if digest_type is not None else None


def keyless_digest(digest_type: DigestType | None) -> Digest | None:
    """The digest a bookie can check without the password; ``None`` for HMAC, and where the type is not known."""
    if digest_type is None or digest_type is DigestType.HMAC:
        return None
    return digest_for(digest_type, b"")


_SIZES = {each.type: each.size for each in (Crc32cDigest, Crc32Digest, HmacDigest, DummyDigest)}
