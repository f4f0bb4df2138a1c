"""CallingBookieClient: the requests of one message each, whatever carries them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import TypeVar

from bookie_server.client.interface import BookieClient
from bookie_server.client.settings import ConnectionSettings
from bookie_server.wire import codec
from bookie_server.wire.messages import (
    BookieInfo,
    EntryList,
    ListRequest,
    Method,
    ReadLacReply,
    ReadLacRequest,
    Status,
)

Reply = TypeVar("Reply")


class CallingBookieClient(BookieClient):
    """What its carrier gives it is one thing: the reply to a request."""

    def __init__(self, bookie_id: str, settings: ConnectionSettings) -> None:
        self.bookie_id = bookie_id
        self._read_timeout_ms = settings.read_timeout_ms
        self._is_closed = False

    @abstractmethod
    async def _call(self, method: Method, request: bytes, timeout_s: float) -> bytes | None:
        """Send a request and wait for its reply; ``None``: there is none in time."""

    async def read_lac(self, request: ReadLacRequest) -> ReadLacReply:
        data = codec.encode_read_lac_request(request)
        parse, waits_ms = codec.parse_read_lac_reply, request.waits_ms
        reply = await self._reply(Method.READ_LAC, data, parse, waits_ms=waits_ms)
        return reply or ReadLacReply(Status.UNREACHABLE)

    async def write_lac(self, ledger_id: int, master_key: bytes, packet: bytes) -> Status:
        data = codec.encode_write_lac_request(ledger_id, master_key, packet)
        status = await self._reply(Method.WRITE_LAC, data, codec.parse_status)
        return status or Status.UNREACHABLE

    async def info(self) -> BookieInfo | None:
        return await self._reply(Method.INFO, b"", codec.parse_info)

    async def list_page(self, ledger_id: int, first_entry: int) -> EntryList:
        data = codec.encode_list_entries_request(ListRequest(ledger_id, first_entry))
        page = await self._reply(Method.LIST_ENTRIES, data, codec.parse_entry_list)
        return page or EntryList(Status.UNREACHABLE)

    async def _reply(
        self, method: Method, data: bytes, parse: Callable[[bytes], Reply], *, waits_ms: int = 0
    ) -> Reply | None:
        """The parsed reply; ``None`` if there is none, or none that parses.

        ``waits_ms`` is how long the bookie may hold the reply back, on top of the usual time limit.
        """
        if self._is_closed:
            return None
        try:
            reply = await self._call(method, data, (self._read_timeout_ms + waits_ms) / 1000)
            return None if reply is None else parse(reply)
        except codec.MalformedFrameError:
            return None
