"""Ledger ids as Apache's clients draw them, from the store's own sequence counters.

31 bits from ``idgen`` first; once those are used up, 63 bits from ``idgen-long``: the high half
names a folder ``HOB-…``, the low half is that folder's counter. A number whose reply got lost is
simply never used. Source: Apache ``ZkLedgerIdGenerator``, ``LongZkLedgerIdGenerator``.

The ephemeral node that counted a number stays until a ledger is created under it, in one step with
that: so everybody can see which numbers may still become ledgers. Apache's clients delete it earlier.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass

from bookkeeper_metadata.errors import MetadataUnavailableError
from bookkeeper_metadata.foundation.bounded import each
from bookkeeper_metadata.paths import SHORT_LEDGER_ID_MAX, Paths
from bookkeeper_metadata.store.interface import MetadataStore
from bookkeeper_metadata.store.operations import NodeExistsError, NoNodeError, NotEmptyError

_ATTEMPTS_MAX = 10
"""Requests to counters for one id."""
_FOLDERS_KEPT = 3
SKIPPED_MAX = 10_000_000
"""Numbers that :meth:`LedgerIds.skip_past` draws at most: an hour of requests."""
_DRAWS_AT_ONCE = 64
_ROUND = 10_000
"""Numbers that are skipped before the next are thought of."""
_FOLDER = re.compile(r"HOB-(\d{10})")
_COUNTED = re.compile(r"ID-\d{10}")


@dataclass(slots=True)
class Drawn:
    """A number drawn from a counter."""

    number: int
    node: str
    """The sequential node whose name is the number."""
    is_spent: bool = False
    """The node is deleted: a ledger was created in the same step."""


class LedgerIds:
    """Draws ids below one cluster's root; remembers only that the short ones are used up."""

    def __init__(self, store: MetadataStore, paths: Paths) -> None:
        self._store = store
        self._paths = paths
        self._is_long = False

    @contextlib.asynccontextmanager
    async def draw(self) -> AsyncIterator[Drawn]:
        """Draw a number that no client was given before.

        A ledger may have it all the same, if its creator chose the id. Who has deleted the node says
        so; otherwise it is deleted in the end.

        Raises:
            MetadataUnavailableError: the store did not answer; nothing needs to be undone.
        """
        drawn = await self._allocate()
        try:
            yield drawn
        finally:
            if not drawn.is_spent:
                await self._delete(drawn.node)

    async def skip_past(self, ledger_id: int) -> int:
        """Draw numbers, and use none of them, until all that come are above ``ledger_id``; returns how many.

        For a store that was restored from a backup: its counter gives out again what was given out since.

        Raises:
            ValueError: that would take more than :data:`SKIPPED_MAX` numbers.
            MetadataUnavailableError: the store did not answer; to be run again.
        """
        drawn = await self._allocate()
        await self._delete(drawn.node)
        count = ledger_id - drawn.number
        if count > SKIPPED_MAX:
            raise ValueError(
                f"the next ledger id is {drawn.number + 1}: {ledger_id} is more than {SKIPPED_MAX} beyond it"
            )

        async def skip(_: int) -> None:
            # One that gets no reply was counted or was not: draw another, for too many do no harm.
            await self._delete((await self._allocate()).node)

        for begun in range(0, count, _ROUND):
            left = range(begun, min(begun + _ROUND, count))
            await each(skip, left, concurrency_max=_DRAWS_AT_ONCE)
        return 1 + max(0, count)

    async def pending(self) -> list[int]:
        """Numbers that were drawn and may still become ledgers of our clients, ascending."""
        found = await self._numbers(self._paths.idgen)
        for name in await self._store.children(self._paths.idgen_long) or []:
            if match := _FOLDER.fullmatch(name):
                high = int(match[1])
                found += [high << 32 | low for low in await self._numbers(self._folder(high))]
        return sorted(found)

    async def _numbers(self, folder: str) -> list[int]:
        names = await self._store.children(folder) or []
        return [int(name.removeprefix("ID-")) for name in names if _COUNTED.fullmatch(name)]

    async def _allocate(self) -> Drawn:
        lost: MetadataUnavailableError | None = None
        for _ in range(_ATTEMPTS_MAX):
            try:
                drawn = await (self._draw_long() if self._is_long else self._draw_short())
            except MetadataUnavailableError as cause:
                lost = cause
                continue
            if drawn is not None:
                return drawn
        raise MetadataUnavailableError(
            self._store.service, f"no ledger id in {_ATTEMPTS_MAX} attempts"
        ) from lost

    async def _draw_short(self) -> Drawn | None:
        drawn = await self._draw(self._paths.idgen)
        if drawn is None:
            self._is_long = True
        return drawn

    async def _draw_long(self) -> Drawn | None:
        names = await self._store.children(self._paths.idgen_long) or []
        folders = [int(match[1]) for match in map(_FOLDER.fullmatch, names) if match]
        # From 1: ids of a folder 0 would be the short ones once more.
        newest = max(folders, default=1)
        low = await self._draw(self._folder(newest))
        if low is not None:
            return Drawn(newest << 32 | low.number, low.node)
        # Another client may have made it already. Either way the next attempt finds it as the
        # newest.
        await self._make(self._folder(newest + 1))
        # Not the latest ones: a client that listed them a moment ago may still draw from one, and
        # in a folder that is deleted and made again the numbers would begin anew.
        for old in sorted(folders)[: -(_FOLDERS_KEPT - 1)]:
            with contextlib.suppress(NoNodeError, NotEmptyError):
                await self._store.delete(self._folder(old))
        return None

    async def _draw(self, folder: str) -> Drawn | None:
        """The next number of a folder's counter; ``None`` when it is used up."""
        try:
            # Ephemeral, so that a client that dies before it deletes the node leaves nothing
            # behind.
            path = await self._store.sequence(f"{folder}/ID-", b"", ephemeral=True)
        except NoNodeError:
            await self._make(folder)
            path = await self._store.sequence(f"{folder}/ID-", b"", ephemeral=True)
        number = int(path.removeprefix(f"{folder}/ID-"))
        # ZooKeeper's counter has 32 bits and goes on below zero.
        if 0 <= number <= SHORT_LEDGER_ID_MAX:
            return Drawn(number, path)
        await self._delete(path)
        return None

    async def _delete(self, path: str) -> None:
        # The node has served its purpose; left behind, it ends with this session.
        with contextlib.suppress(NoNodeError, MetadataUnavailableError):
            await self._store.delete(path)

    async def _make(self, folder: str) -> None:
        with contextlib.suppress(NodeExistsError):
            await self._store.create(folder, b"", make_parents=True)

    def _folder(self, high: int) -> str:
        return f"{self._paths.idgen_long}/HOB-{high:010d}"
