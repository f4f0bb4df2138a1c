"""Write-back: store what a recovery found, byte for byte as read, on an ack quorum of bookies.

The bookies are those of the last fragment, and from some entry on others where too few of those can
store anything. Only this recovery knows that ensemble until it closes the ledger: a client that
recovers at the same time, or again after this attempt died, goes on asking the bookies the writer
wrote to. A bookie that fails is left alone while its write set reaches the ack quorum without it.

Source: Apache ``LedgerRecoveryOp``, ``newEnsemblesFromRecovery`` (BOOKKEEPER-355, -581); unlike
Apache's, the entries keep the LAC they were written with, which no recovery may raise on its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from bookie_server.wire.messages import EncodedSection, Status
from bookie_server.wire.record import Run
from bookkeeper_metadata.model import Fragment, LedgerMetadata
from spark_bookkeeper.ledger.context import LedgerContext
from spark_bookkeeper.ledger.errors import LedgerRecoveryError
from spark_bookkeeper.ledger.protocol.quorum import QuorumConfig
from spark_bookkeeper.ledger.protocol.recovery_adds import RecoveryAdds, cut_to_size


class WriteBack:
    """One recovery's writes, in entry order."""

    def __init__(self, cluster: LedgerContext, ledger_id: int, metadata: LedgerMetadata) -> None:
        self._cluster = cluster
        self._ledger_id = ledger_id
        self._quorum = QuorumConfig.of(metadata)
        self._read_from = metadata.last_fragment
        self._adds = RecoveryAdds(ledger_id, metadata)
        self._written_to = metadata
        self._in_limbo: set[str] = set()
        """Bookies that lack records of the ledger and take no adds of it."""
        self._refused: set[str] = set()
        """Bookies that did not take the present chunk: each is asked once, or two could replace each
        other for ever."""

    @property
    def fragments(self) -> tuple[Fragment, ...]:
        """The fragments that replace the last one in the metadata when the ledger is closed."""
        return tuple(
            fragment
            for fragment in self._written_to.fragments
            if fragment.first_entry >= self._read_from.first_entry
        )

    async def store(self, entries: list[Run]) -> None:
        """Store consecutive entries, one record each; returns when all are at their ack quorum.

        Raises:
            LedgerRecoveryError: they cannot be, with the bookies there are.
            MetadataUnavailableError: the metadata service did not say which bookies are registered.
        """
        size_bytes_max = self._cluster.settings.connection.frame_size_bytes_max
        for chunk in cut_to_size(entries, size_bytes_max):
            await self._store_chunk(chunk)

    async def _store_chunk(self, chunk: list[Run]) -> None:
        """Entries that fit one message, so one section for each position."""
        first_entry, last_entry = chunk[0].first_entry, chunk[-1].last_entry
        sections = self._sections(chunk)
        answers: asyncio.Queue[tuple[int, Status]] = asyncio.Queue()
        stored: set[int] = set()
        failed: dict[int, str] = {}
        self._refused.clear()
        self._send(sections, answers)
        while not self._quorum.can_acknowledge(stored, first_entry, last_entry):
            usable = sections.keys() - failed.keys()
            if not self._quorum.can_acknowledge(usable, first_entry, last_entry):
                replaced = await self._replace(failed, first_entry)
                self._send({p: sections[p] for p in replaced if p in sections}, answers)
                continue
            # A position gets another bookie only after the one before has answered, so each answer
            # is about the bookie that is there now.
            position, status = await answers.get()
            if status is Status.OK:
                stored.add(position)
            else:
                failed[position] = self._ensemble[position]
                self._note_refusal(failed[position], status)

    def _note_refusal(self, bookie_id: str, status: Status) -> None:
        (self._in_limbo if status is Status.LIMBO else self._refused).add(bookie_id)
        self._cluster.note_refusal(bookie_id, status)

    async def _replace(self, failed: dict[int, str], first_entry: int) -> tuple[int, ...]:
        """Replace bookies that failed, from ``first_entry`` on; returns the positions replaced."""
        replacement = await self._cluster.replace_bookies(
            self._ensemble, failed, excluded=self._refused | self._in_limbo
        )
        if not replacement.positions:
            raise LedgerRecoveryError(
                self._ledger_id,
                f"entry {first_entry} could not be written back to an ack quorum: "
                f"{','.join(failed.values())} failed and no other bookie can replace them",
            )
        for position in replacement.positions:
            del failed[position]
        # From this chunk on only: those before are at their ack quorum where they are.
        self._written_to = self._written_to.with_ensemble(first_entry, replacement.ensemble)
        return replacement.positions

    @property
    def _ensemble(self) -> tuple[str, ...]:
        return self._written_to.last_fragment.ensemble

    def _send(
        self, sections: dict[int, EncodedSection], answers: asyncio.Queue[tuple[int, Status]]
    ) -> None:
        def on_answer(position: int) -> Callable[[Status], None]:
            return lambda status: answers.put_nowait((position, status))

        for position, section in sections.items():
            self._cluster.client(self._ensemble[position]).write(section, on_answer(position))

    def _sections(self, chunk: list[Run]) -> dict[int, EncodedSection]:
        """The section for each position; one object for all positions where nothing is striped."""
        positions = range(self._quorum.ensemble_size)
        if not self._quorum.is_striped:
            return dict.fromkeys(positions, self._adds.section(chunk))
        sections: dict[int, EncodedSection] = {}
        for position in positions:
            mine = [e for e in chunk if position in self._quorum.write_set(e.first_entry)]
            if mine:
                sections[position] = self._adds.section(mine)
        return sections
