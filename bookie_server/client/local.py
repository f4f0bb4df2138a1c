"""BookieClient within one process: the wire's bytes, without a wire.

Everything goes through the codec in both directions, so what a bookie sees and says here is what it
would see and say over gRPC. For tests and simulation, which put their faults around this class.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from bookie_server.bookie import Bookie
from bookie_server.client.interface import BookieClient
from bookie_server.wire import add_frames, codec
from bookie_server.wire.messages import (
    BookieInfo,
    EncodedSection,
    EntryList,
    ListRequest,
    ReadLacReply,
    ReadLacRequest,
    ReadReply,
    ReadRequest,
    Section,
    Status,
)


class LocalBookieClient(BookieClient):
    """Talks to a :class:`Bookie` on the same event loop; does not own it."""

    def __init__(self, bookie_id: str, bookie: Bookie) -> None:
        self.bookie_id = bookie_id
        self._bookie = bookie

    def write(self, section: EncodedSection, done: Callable[[Status], None]) -> None:
        loop = asyncio.get_running_loop()

        def answer(part: Section, status: Status) -> None:
            (received,) = add_frames.parse_write_reply(
                add_frames.encode_write_reply([part.reply(status)])
            )
            # A bookie may refuse at once; ``done`` is never called
            # from within this call all the same.
            loop.call_soon(done, received.status)

        for part in add_frames.parse_frame(section.data):
            self._bookie.add(part, partial(answer, part))

    async def read(self, request: ReadRequest) -> ReadReply:
        request_id, received = codec.parse_read_request(codec.encode_read_request(1, request))
        frame = codec.encode_read_reply(request_id, await self._bookie.read(received))
        return codec.parse_read_reply(frame)[1]

    async def read_lac(self, request: ReadLacRequest) -> ReadLacReply:
        received = codec.parse_read_lac_request(codec.encode_read_lac_request(request))
        reply = await self._bookie.read_lac(received)
        return codec.parse_read_lac_reply(codec.encode_read_lac_reply(reply))

    async def write_lac(self, ledger_id: int, master_key: bytes, packet: bytes) -> Status:
        return await self._bookie.write_lac(ledger_id, master_key, packet)

    async def info(self) -> BookieInfo | None:
        ledger_count = len(self._bookie.storage.contents.ledgers)
        return BookieInfo(self.bookie_id, ledger_count=ledger_count)

    async def list_page(self, ledger_id: int, first_entry: int) -> EntryList:
        sent = codec.encode_list_entries_request(ListRequest(ledger_id, first_entry))
        reply = self._bookie.list_entries(codec.parse_list_entries_request(sent))
        return codec.parse_entry_list(codec.encode_entry_list(reply))

    async def close(self) -> None:
        """Do nothing: the owner of the bookie stops it."""
