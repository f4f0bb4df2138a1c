"""BookieClient: one bookie as its clients see it, whatever the transport.

A client never raises for what a bookie or the network did: outcomes are values. What cannot be
known comes back as ``UNREACHABLE`` or ``UNKNOWN``, never as absence.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from bookie_server.wire.messages import (
    BookieInfo,
    EncodedSection,
    EntryList,
    IdRange,
    ReadLacReply,
    ReadLacRequest,
    ReadReply,
    ReadRequest,
    Status,
)

_RANGES_MAX = 2**24
"""Of one ledger at one bookie: of more the client has no memory."""
_EMPTY_PAGES_MAX = 10_000
"""One behind the other: whoever has no lists is read by a few ids a page, and nobody has gaps of so many."""


class BookieClient(ABC):
    """The requests of bookie.proto; one object per bookie and event loop, safe to share there."""

    bookie_id: str

    @abstractmethod
    def write(self, section: EncodedSection, done: Callable[[Status], None]) -> None:
        """Send a section.

        ``done`` is called exactly once, on the event loop and never from within this call: with the
        bookie's status, or ``UNREACHABLE`` when none came in time, in which case the entries may or
        may not be stored. The same bytes are sent again after a broken connection; bookies store an
        entry once.
        """

    @abstractmethod
    async def read(self, request: ReadRequest) -> ReadReply:
        """Records, and a status for each wanted id not among them."""

    @abstractmethod
    async def read_lac(self, request: ReadLacRequest) -> ReadLacReply:
        """The highest entry held and the explicit LAC; if it ``is_fencing`` also fence, durably.

        With a ``long_poll`` the answer comes when there is news, and brings the new entries.
        """

    @abstractmethod
    async def write_lac(self, ledger_id: int, master_key: bytes, packet: bytes) -> Status:
        """Send an explicit LAC packet for readers to find."""

    @abstractmethod
    async def info(self) -> BookieInfo | None:
        """The bookie's identity and disk; ``None`` when it does not answer."""

    async def list_entries(self, ledger_id: int) -> EntryList:
        """List the entries of a ledger that the bookie holds, page by page.

        The pages are looked up one after the other; an entry added meanwhile may be missing.
        """
        held: list[IdRange] = []
        first_entry, empty_pages = 0, 0
        while True:
            page = await self.list_page(ledger_id, first_entry)
            held += page.held
            if page.status not in (Status.OK, Status.LIMBO) or not page.next_entry:
                return EntryList(page.status, tuple(held), damaged_count=page.damaged_count)
            last_listed = page.held[-1].last_entry if page.held else first_entry
            empty_pages = 0 if page.held else empty_pages + 1
            is_endless = len(held) > _RANGES_MAX or empty_pages > _EMPTY_PAGES_MAX
            if page.next_entry <= max(first_entry, last_listed) or is_endless:
                return EntryList(Status.UNKNOWN, tuple(held))  # it would go on for ever
            first_entry = page.next_entry

    @abstractmethod
    async def list_page(self, ledger_id: int, first_entry: int) -> EntryList:
        """List entries from ``first_entry`` on, as many ranges as the bookie puts into one reply."""

    @abstractmethod
    async def close(self) -> None:
        """Give up what is outstanding (``UNREACHABLE``) and release the connection."""
