"""What ``ledgers verify`` says: the defects of all replicas, gathered into runs of entries.

A replica that lacks an entry is no failure while enough others hold it, for a writer waits for an ack
quorum, not for all: the ledger is *under-replicated*, and one more loss may be one too many. Wrong
content is a failure, and so is a replica that could not be asked, because "not looked at" is not "fine".
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import click

from bookie_server.wire.messages import Status
from bookkeeper_metadata.errors import NoSuchLedgerError
from bookkeeper_metadata.foundation.errors import BookKeeperError
from spark_bookkeeper import aio
from spark_bookkeeper.replication.verify import EntryReport, verify_ledger

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
    without_copy: list[list[int]] = field(default_factory=list)
    """Runs of those of them of which no good copy was found: now they cannot be read."""
    error: BookKeeperError | None = None
    """Why it could not be verified to its end."""
    repaired: int = 0
    """Copies that were made good in between, where that was asked for."""
    not_repaired: list[str] = field(default_factory=list)
    """Why others were not, a line each."""

    @property
    def has_passed(self) -> bool:
        """Every replica was asked, none differs, and enough hold each entry."""
        is_sound = not self.below_ack_quorum and all(map(_is_absence, self.defects))
        return is_sound and self.error is None

    @property
    def copies_missing(self) -> int:
        """Entries that a bookie of their write set denies to have, counted at each bookie."""
        return _count(filter(_is_absence, self.defects))

    @property
    def bad_copies(self) -> int:
        """Copies that are missing, or not as they should be."""
        return _count(self.defects)

    @property
    def needs_repair(self) -> bool:
        """Whether another copy of what is bad may be had."""
        return bool(self.defects) and self.error is None

    @property
    def outcome(self) -> str:
        """In a word."""
        if not self.has_passed:
            return "FAILED"
        return "under-replicated" if self.copies_missing else "passed"

    def take(self, report: EntryReport) -> None:
        """Add the report of the entries that follow those of the report before."""
        self.entries += report.last_entry - report.first_entry + 1
        self.replicas_checked += report.replicas_checked
        for defect in report.defects:
            self._extend(defect.bookie_id, defect.what, defect.entry_id)
        _extend_runs(self.below_ack_quorum, report.below_ack_quorum)
        _extend_runs(self.without_copy, report.without_copy)

    def as_document(self) -> dict[str, Any]:
        """Stable keys for machines."""
        head = {"ledger_id": self.ledger_id, "outcome": self.outcome, "passed": self.has_passed}
        document = {**head, "copies_missing": self.copies_missing, **asdict(self)}
        if self.error is not None:
            document["error"] = f"{self.error.name}: {self.error}"
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


def _extend_runs(runs: list[list[int]], entry_ids: Iterable[int]) -> None:
    for entry_id in entry_ids:
        if runs and runs[-1][1] == entry_id - 1:
            runs[-1][1] = entry_id
        else:
            runs.append([entry_id, entry_id])


def _count(defects: Iterable[Mapping[str, Any]]) -> int:
    """The entries of these runs."""
    return sum(each["last_entry"] - each["first_entry"] + 1 for each in defects)


def _is_absence(defect: Mapping[str, Any]) -> bool:
    return defect["what"] in ABSENT


async def verify_ledgers(
    client: aio.BookKeeper,
    ledger_ids: Sequence[int],
    *,
    logs: Sequence[str] = (),
    is_all: bool = False,
    password: bytes = b"",
) -> AsyncIterator[Verification]:
    """Verify the ledgers named by their ids, then those of the logs; or all of the cluster.

    A ledger that cannot be opened, or not read to its end, says so in ``error``.

    Raises:
        NoSuchLogError: there is no log of this name.
    """
    named = dict.fromkeys(ledger_ids)
    for log in logs:
        opened = await client.open_log(log)
        named |= dict.fromkeys(each.ledger_id for each in await opened.ledgers())
    for ledger_id in named:
        yield await verify_one(client, ledger_id, password)
    if is_all:
        async for ledger_id in client.list_ledgers():
            found = await verify_one(client, ledger_id, password)
            # Deleted since it was listed: nothing is left that could be wrong with it.
            if not isinstance(found.error, NoSuchLedgerError):
                yield found


async def verify_one(client: aio.BookKeeper, ledger_id: int, password: bytes) -> Verification:
    """Read and compare every replica of every entry, showing progress on a terminal."""
    result, is_watched = Verification(ledger_id), sys.stderr.isatty()
    try:
        async for report in verify_ledger(await client.connect(), ledger_id, password=password):
            result.take(report)
            if is_watched:
                line = f"\rledger {ledger_id}: {result.entries:,} entries compared"
                click.echo(line, err=True, nl=False)
    except BookKeeperError as error:
        result.error = error
    if is_watched:
        click.echo("", err=True)
    return result
