"""Ledger ids as Apache's clients draw them, from the store's own sequence counters.

31 bits from ``idgen`` first; once those are used up, 63 bits from ``idgen-long``: the high half
names a folder ``HOB-…``, the low half is that folder's counter. A number whose reply got lost is
simply never used. Source: Apache ``ZkLedgerIdGenerator``, ``LongZkLedgerIdGenerator``.
"""

from __future__ import annotations

import contextlib
import re

from metadata.errors import MetadataUnavailableError
from metadata.paths import SHORT_LEDGER_ID_MAX, Paths
from metadata.store import MetadataStore, NodeExistsError, NoNodeError, NotEmptyError

_ATTEMPTS_MAX = 10
"""Counters asked, or asked again, for one id."""
_FOLDERS_KEPT = 3
_FOLDER = re.compile(r"HOB-(\d{10})")


class LedgerIds:
    """Draws ids below one cluster's root; remembers only that the short ones are used up."""

    def __init__(self, store: MetadataStore, paths: Paths) -> None:
        self._store = store
        self._paths = paths
        self._is_long = False

    async def allocate(self) -> int:
        """A number that no caller of any client was given before.

        Raises:
            MetadataUnavailableError: the store kept silent; nothing needs undoing.
        """
        lost: MetadataUnavailableError | None = None
        for _ in range(_ATTEMPTS_MAX):
            try:
                ledger_id = await (self._draw_long() if self._is_long else self._draw_short())
            except MetadataUnavailableError as cause:
                lost = cause
                continue
            if ledger_id is not None:
                return ledger_id
        raise MetadataUnavailableError(
            self._store.service, f"no ledger id in {_ATTEMPTS_MAX} attempts"
        ) from lost

    async def _draw_short(self) -> int | None:
        number = await self._draw(self._paths.idgen)
        if number is None:
            self._is_long = True
        return number

    async def _draw_long(self) -> int | None:
        names = await self._store.children(self._paths.idgen_long) or []
        folders = [int(match[1]) for match in map(_FOLDER.fullmatch, names) if match]
        newest = max(folders, default=1)
        low = await self._draw(self._folder(newest))
        if low is not None:
            return newest << 32 | low
        await self._make(self._folder(newest + 1))
        for old in sorted(folders)[: -(_FOLDERS_KEPT - 1)]:
            with contextlib.suppress(NoNodeError, NotEmptyError):
                await self._store.delete(self._folder(old))
        return None

    async def _draw(self, folder: str) -> int | None:
        """The next number of a folder's counter; ``None`` when it is used up."""
        try:
            path = await self._store.sequence(f"{folder}/ID-", b"", ephemeral=True)
        except NoNodeError:
            await self._make(folder)
            path = await self._store.sequence(f"{folder}/ID-", b"", ephemeral=True)
        # The node has served its purpose; left behind, it ends with this session.
        with contextlib.suppress(NoNodeError, MetadataUnavailableError):
            await self._store.delete(path)
        number = int(path.removeprefix(f"{folder}/ID-"))
        return number if 0 <= number <= SHORT_LEDGER_ID_MAX else None

    async def _make(self, folder: str) -> None:
        with contextlib.suppress(NodeExistsError):
            await self._store.create(folder, b"", make_parents=True)

    def _folder(self, high: int) -> str:
        return f"{self._paths.idgen_long}/HOB-{high:010d}"
