"""What ``ledgers verify`` says: the defects of all replicas, gathered into runs of entries.

A replica that lacks an entry is reported and no failure while enough others hold it: a writer waits
for an ack quorum, not for all. Wrong content is one, and so is a replica that could not be asked,
because "not looked at" is not "fine".
"""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass, field
from typing import Any

import click

from bookie_server.wire.messages import Status
from spark_bookkeeper import aio
from spark_bookkeeper.ledger.verify import EntryReport, verify_ledger

ABSENT = {status.name for status in Status if status.is_evidence_of_absence}


@dataclass
class Verification:
    """The outcome for a whole ledger."""

    ledger_id: int
    entries: int = 0
    replicas_checked: int = 0
    defects: list[dict[str, Any]] = field(default_factory=list)
    """``bookie_id``, ``what``, ``first_entry``, ``last_entry``; by bookie, then entry."""
    below_ack_quorum: list[list[int]] = field(default_factory=list)
    """``[first, last]`` runs of entries that fewer replicas hold than the ack quorum."""

    @property
    def has_passed(self) -> bool:
        """Every replica was asked, none differs, and enough hold each entry."""
        return not self.below_ack_quorum and all(each["what"] in ABSENT for each in self.defects)

    def take(self, report: EntryReport) -> None:
        """Add the report of the entries that follow those of the report before."""
        self.entries += report.last_entry - report.first_entry + 1
        self.replicas_checked += report.replicas_checked
        for defect in report.defects:
            self._extend(defect.bookie_id, defect.what, defect.entry_id)
        for entry_id in report.below_ack_quorum:
            if self.below_ack_quorum and self.below_ack_quorum[-1][1] == entry_id - 1:
                self.below_ack_quorum[-1][1] = entry_id
            else:
                self.below_ack_quorum.append([entry_id, entry_id])

    def as_document(self) -> dict[str, Any]:
        """Stable keys for machines."""
        document = {"ledger_id": self.ledger_id, "passed": self.has_passed, **asdict(self)}
        document["defects"].sort(key=lambda each: (each["bookie_id"], each["first_entry"]))
        return document

    def _extend(self, bookie_id: str, what: str, entry_id: int) -> None:
        # Reports go by entry with the bookies mixed: a run goes on where this bookie's newest one
        # ended.
        newest = next(
            (each for each in reversed(self.defects) if each["bookie_id"] == bookie_id), None
        )
        if newest and newest["what"] == what and newest["last_entry"] == entry_id - 1:
            newest["last_entry"] = entry_id
            return
        found = {"bookie_id": bookie_id, "what": what}
        self.defects.append({**found, "first_entry": entry_id, "last_entry": entry_id})


async def verify(uri: str, ledger_id: int, password: bytes) -> Verification:
    """Read and compare every replica of every entry, showing progress on a terminal.

    Raises:
        NoSuchLedgerError, UnauthorizedError, EntryUnreadableError: the ledger cannot be opened.
    """
    result = Verification(ledger_id)
    is_watched = sys.stderr.isatty()
    async with aio.BookKeeper(uri) as client:
        ledgers = await client.connect()
        async for report in verify_ledger(ledgers, ledger_id, password=password):
            result.take(report)
            if is_watched:
                click.echo(f"\r{result.entries:,} entries compared", err=True, nl=False)
    if is_watched:
        click.echo("", err=True)
    return result
