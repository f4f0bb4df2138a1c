"""Leader: one writer's claim to a log, from take-over to resignation.

Remembers nothing but its own ledgers. Whether it still leads, the log's head says: it does as long as
that names a ledger of its own as open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from bookkeeper_metadata.errors import MetadataUnavailableError
from bookkeeper_metadata.ledgers import ExtraOperations
from bookkeeper_metadata.store.operations import Operation
from spark_bookkeeper.ledger.client import LOG_MARK
from spark_bookkeeper.ledger.errors import LedgerRecoveryError
from spark_bookkeeper.log.errors import LogFencedError, NoSuchLogError
from spark_bookkeeper.log.format.model import LogSettings
from spark_bookkeeper.log.ledgers import LedgerAppender, Ledgers
from spark_bookkeeper.log.writing.tail import LogTail, Tenure

_LOOK_S = 0.2
"""Between two looks whether somebody takes the log over."""
_PATIENCE_S_MAX = 60.0
"""Nobody takes longer from the recovery of a ledger to the head of its log, or he may wait for the next time."""
_CALM_S = 600.0
"""Recoveries further apart than that have nothing to do with each other."""
_RECOVERY_PAUSES_S = (1.0, 2.0, 4.0, 8.0, 16.0)
"""Between two tries to find the end of a ledger of which too few bookies answer."""


class Patience:
    """How long somebody who recovers a ledger is left to take the log over: longer, the more often it happens.

    So one who wants the log, and takes his time to recover a ledger, gets it in the end.
    """

    def __init__(self, grace_ms: int) -> None:
        self._grace_s = grace_ms / 1000
        self._last_s: float | None = None
        self._delay_s = 0.0

    def next_s(self, now_s: float) -> float:
        """It happened now."""
        is_soon = self._last_s is not None and now_s - self._last_s < _CALM_S
        self._last_s = now_s
        longer_s = min(2 * self._delay_s, _PATIENCE_S_MAX) if is_soon else 0.0
        self._delay_s = max(self._grace_s, longer_s)
        return self._delay_s


class Leader:
    """One writer's claim to lead a log: takes it over, follows itself in a roll, resigns."""

    _sleep = staticmethod(asyncio.sleep)
    """Tests without a clock put another in its place."""

    def __init__(self, tail: LogTail, ledgers: Ledgers, *, password: bytes = b"") -> None:
        self._tail = tail
        self._ledgers = ledgers
        self._password = password
        self._own: set[int] = set()
        """Ledgers of ours the head may name: the present one, and those whose creation got no
        reply; an id is never used twice, so finding one of them proves that no other writer followed us."""

    @property
    def log(self) -> str:
        """The log's name."""
        return self._tail.nodes.log

    async def take_over(self) -> Tenure:
        """Follow the writer that leads the log, if any.

        Raises: as :meth:`LogTail.follow`.
        """
        return await self._follow(lambda found: None)

    async def roll(self) -> Tenure:
        """Follow our own ledger, which is closed.

        Raises:
            LogFencedError: another writer followed it.
            BookKeeperError: as :meth:`LogTail.follow`.
        """
        own = max(self._own)

        def check(found: int | None) -> None:
            # Also when there is none: somebody recovered the log and left it without a writer.
            if found not in self._own:
                raise LogFencedError(own, self.log)

        return await self._follow(check)

    async def regain(self, grace_s: float) -> Tenure:
        """Follow our own ledger, which somebody else recovers, unless he takes the log over in so long.

        Raises:
            LogFencedError: he did, or ``grace_s`` is 0.
            LedgerRecoveryError: too few bookies answer, and that lasts.
            BookKeeperError: as :meth:`LogTail.follow`.
        """
        fenced = LogFencedError(max(self._own), self.log)
        if not grace_s:
            raise fenced
        left_s = grace_s
        while left_s > 0:
            if not await self._ask_whether_leading():
                raise fenced
            await self._sleep(min(left_s, _LOOK_S))
            left_s -= _LOOK_S
        for pause_s in _RECOVERY_PAUSES_S:
            try:
                return await self.roll()
            except LedgerRecoveryError:
                await self._sleep(pause_s)
        return await self.roll()

    async def _ask_whether_leading(self) -> bool:
        """Whether the head may name our ledger still: it does, or nobody knows."""
        try:
            if await self._read_whether_named():
                return True
            # A server that lags shows an older head.
            await self._tail.nodes.sync()
            return await self._read_whether_named()
        except NoSuchLogError:
            return False
        except MetadataUnavailableError:
            return True

    async def _read_whether_named(self) -> bool:
        opened = (await self._tail.nodes.head()).head.open_ledger
        return opened is not None and opened.ledger_id in self._own

    async def resign(self) -> None:
        """Record the end of our ledger, which is closed; do nothing if another writer followed us."""
        await self._tail.close(only=frozenset(self._own))

    async def _follow(self, check: Callable[[int | None], None]) -> Tenure:
        tenure = await self._tail.follow(self._create, check=check)
        # The others are recorded by now, or never come about: their multis demand an older head.
        self._own = {tenure.appender.ledger_id}
        return tenure

    async def _create(
        self, settings: LogSettings, extra_operations: ExtraOperations
    ) -> LedgerAppender:
        def remember_and_extend(ledger_id: int) -> Sequence[Operation]:
            # Noted before the multi is sent, for it may be applied and its reply lost.
            self._own.add(ledger_id)
            return extra_operations(ledger_id)

        return await self._ledgers.create(
            settings,
            password=self._password,
            custom_metadata={LOG_MARK: self.log.encode()},
            extra_operations=remember_and_extend,
        )
