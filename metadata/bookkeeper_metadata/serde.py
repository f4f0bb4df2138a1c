"""Apache's bytes of a ledger's metadata, and back.

A value is the line ``BookieMetadataFormatVersion<TAB>3`` and a protobuf message behind its varint
length. We write version 3 only, as Apache does since 4.9, and read version 2 as well (the same
message as protobuf text). Anything else, a version of the future above all, is an error that names
it: guessing at a ledger's ensembles would turn "don't know" into "no such entry".
Source: Apache ``LedgerMetadataSerDe``.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import text_format
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from bookkeeper_metadata.errors import MetadataCorruptError
from bookkeeper_metadata.model import NO_ENTRY_ID, DigestType, Fragment, LedgerMetadata, LedgerState
from bookkeeper_metadata.proto.ledger_metadata_pb2 import LedgerMetadataFormat

_MAGIC = b"BookieMetadataFormatVersion\t"
_VERSION_DIGITS_MAX = 10
_HEADER = _MAGIC + b"3\n"
_VARINT_SIZE_MAX = 10
_DIGEST_TYPE_FIELD = LedgerMetadataFormat.DESCRIPTOR.fields_by_name["digestType"].number


def encode_metadata(metadata: LedgerMetadata) -> bytes:
    """Encode metadata as Apache's clients do (format version 3).

    A creation time of -1 is left out, so that readers fall back to the node's own. Custom metadata
    stays in the order of its mapping, so that what was parsed is encoded as it was: Java's has the order of its hashes.
    """
    message = LedgerMetadataFormat(
        quorumSize=metadata.write_quorum,
        ensembleSize=metadata.ensemble_size,
        length=metadata.length,
        lastEntryId=metadata.last_entry,
        state=metadata.state.value,  # type: ignore[arg-type]
        digestType=metadata.digest_type.value,  # type: ignore[arg-type]
        password=metadata.password,
        ackQuorumSize=metadata.ack_quorum,
        cToken=metadata.writer_token,
    )
    if metadata.created_ms >= 0:
        message.ctime = metadata.created_ms
    for fragment in metadata.fragments:
        message.segment.add(ensembleMember=fragment.ensemble, firstEntryId=fragment.first_entry)
    for key, value in metadata.custom_metadata.items():
        message.customMetadata.add(key=key, value=value)
    body = message.SerializeToString(deterministic=True)
    return _HEADER + _encode_varint(len(body)) + body


def parse_metadata(value: bytes, path: str) -> LedgerMetadata:
    """Parse a node's value; ``path`` names the node in errors.

    Raises:
        MetadataCorruptError: it is no metadata, breaks the rules of a ledger, or has a format
            version other than 2 or 3.
    """
    version, body = _split_header(value, path)
    message = LedgerMetadataFormat()
    try:
        if version == 2:
            text_format.Parse(body.decode(), message)
        else:
            message.ParseFromString(_undelimited(body, path))
        if not message.IsInitialized():
            raise MetadataCorruptError(path, "required fields are missing")
        return _to_model(message)
    except text_format.ParseError as cause:
        # Its own words show what stands there, a password among that.
        place = f"line {cause.GetLine()}, column {cause.GetColumn()}"
        raise MetadataCorruptError(path, f"no text of metadata from {place} on") from None
    except (DecodeError, ValueError) as cause:
        raise MetadataCorruptError(path, str(cause)) from cause


def _split_header(value: bytes, path: str) -> tuple[int, bytes]:
    # Bounded, because the first line feed of something else may lie anywhere.
    line_end = value.find(b"\n", 0, len(_MAGIC) + _VERSION_DIGITS_MAX + 1)
    digits = value[len(_MAGIC) : line_end]
    if not value.startswith(_MAGIC) or line_end < 0 or not digits.isdigit():
        raise MetadataCorruptError(path, "value does not begin with a metadata format version")
    version = int(digits)
    if version not in (2, 3):
        raise MetadataCorruptError(
            path, f"metadata format version {version} is not supported, only 2 and 3 are"
        )
    return version, value[line_end + 1 :]


def _undelimited(body: bytes, path: str) -> bytes:
    """Take the varint length off a message; it must account for every byte behind it."""
    size = 0
    for index, byte in enumerate(body[:_VARINT_SIZE_MAX]):
        size |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            message = body[index + 1 :]
            # A value that was cut off may still parse, as a ledger with fewer fragments.
            if len(message) != size:
                raise MetadataCorruptError(
                    path, f"length says {size} bytes, {len(message)} are there"
                )
            return message
    raise MetadataCorruptError(path, "value ends within its length")


def _encode_varint(number: int) -> bytes:
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _to_model(message: LedgerMetadataFormat) -> LedgerMetadata:
    # proto2 keeps an enum value it does not know among the unknown fields, where it would pass for
    # "absent"; reading a ledger with the wrong digest would call every entry of it damaged.
    unknown_fields: Any = UnknownFieldSet(message)  # its stubs do not know that it iterates
    if any(unknown.field_number == _DIGEST_TYPE_FIELD for unknown in unknown_fields):
        raise ValueError("unknown digest type")
    closed = message.state == LedgerMetadataFormat.CLOSED
    return LedgerMetadata(
        ensemble_size=message.ensembleSize,
        write_quorum=message.quorumSize,
        ack_quorum=message.ackQuorumSize
        if message.HasField("ackQuorumSize")
        else message.quorumSize,
        fragments=tuple(
            Fragment(segment.firstEntryId, tuple(map(text, segment.ensembleMember)))
            for segment in message.segment
        ),
        state=LedgerState(message.state),
        # Apache ignores both unless the ledger is closed.
        last_entry=message.lastEntryId if closed else NO_ENTRY_ID,
        length=message.length if closed else 0,
        # Absent means protobuf's own default, CRC32, as in Apache's reader.
        digest_type=DigestType(message.digestType),
        password=message.password,
        custom_metadata={text(entry.key): entry.value for entry in message.customMetadata},
        # 0 would be a time; -1 has the reader take the node's, and so has any other negative one.
        created_ms=max(message.ctime, -1) if message.HasField("ctime") else -1,
        writer_token=message.cToken,
    )


def text(value: str | bytes) -> str:
    """Return a string field; where it is not UTF-8, protobuf has bytes there, against its types.

    Raises:
        ValueError: the field is not UTF-8.
    """
    if isinstance(value, bytes):
        raise ValueError(f"string is not UTF-8: {value!r}")
    return value
