"""Records and sections as a client sends them, each in one call."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from bookie_server.bookie import Bookie
from bookie_server.client.interface import BookieClient
from bookie_server.wire import add_frames
from bookie_server.wire.digest import Crc32cDigest, Digest, master_key
from bookie_server.wire.messages import EncodedSection, Section, Status
from bookie_server.wire.packaging import encode_records
from bookie_server.wire.record import parse_run
from bookkeeper_metadata.model import DigestType

KEY = master_key(b"")
CRC32C = Crc32cDigest()


def records(
    payloads: Sequence[bytes],
    first_entry: int = 0,
    *,
    ledger_id: int = 7,
    lac: int = -1,
    length_before: int = 0,
    digest: Digest = CRC32C,
) -> bytes:
    """A run of records, each with this LAC."""
    parts = encode_records(
        digest,
        ledger_id,
        first_entry,
        payloads,
        last_add_confirmed=lac,
        length_before=length_before,
    )
    return b"".join(parts)


def section(payloads: Sequence[bytes], first_entry: int = 0, **how: int) -> Section:
    """An add of ``payloads`` as a bookie gets it; ``how`` as in :func:`records`."""
    run = parse_run(records(payloads, first_entry, **how))  # type: ignore[arg-type]
    return Section(how.get("ledger_id", 7), KEY, False, DigestType.CRC32C, run)


def encoded_section(payloads: Sequence[bytes], first_entry: int = 0, **how: int) -> EncodedSection:
    """An add of ``payloads`` as a client sends it."""
    ledger_id, data = how.get("ledger_id", 7), records(payloads, first_entry, **how)  # type: ignore[arg-type]
    header = add_frames.encode_section_header(ledger_id, KEY, DigestType.CRC32C)
    last_entry = first_entry + len(payloads) - 1
    frame = add_frames.encode_section(header, [data])
    return EncodedSection(ledger_id, first_entry, last_entry, False, frame)


def encode_copy(ledger_id: int, record: bytes) -> EncodedSection:
    """A recovery add of a record as another bookie has it."""
    header = add_frames.encode_section_header(ledger_id, KEY, DigestType.CRC32C, is_recovery=True)
    entry_id = parse_run(record).first_entry
    frame = add_frames.encode_section(header, [record])
    return EncodedSection(ledger_id, entry_id, entry_id, True, frame)


async def write(client: BookieClient, sent: EncodedSection) -> Status:
    """What a bookie answers over the network."""
    answer: asyncio.Future[Status] = asyncio.get_running_loop().create_future()
    client.write(sent, answer.set_result)
    return await answer


async def add(bookie: Bookie, added: Section) -> Status:
    """What a bookie in this process answers."""
    answer: asyncio.Future[Status] = asyncio.get_running_loop().create_future()
    bookie.add(added, answer.set_result)
    return await answer
