"""Leader: one writer's claim to a log, from take-over to resignation.

Remembers nothing but its own ledgers. Whether it still leads, the log's head says: it does as long as
that names a ledger of its own as open.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bookkeeper_metadata.ledgers import ExtraOperations
from bookkeeper_metadata.store.operations import Operation
from spark_bookkeeper.ledger.client import LOG_MARK
from spark_bookkeeper.log.errors import LogFencedError
from spark_bookkeeper.log.format.model import LogSettings
from spark_bookkeeper.log.ledgers import LedgerAppender, Ledgers
from spark_bookkeeper.log.writing.tail import LogTail, Tenure


class Leader:
    """One writer's claim to lead a log: takes it over, follows itself in a roll, resigns."""

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
