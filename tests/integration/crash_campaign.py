"""``python -m tests.integration.crash_campaign --kills N [--seed S]``: bookies are killed under writers.

One by one, two, all at once, while they start, while they are stopped (SIGSTOP), and some stay away for
a while. Real processes, real disks, SIGKILL. Two kinds of writers append meanwhile: one keeps its ledger
and its bookies through everything; the other begins ledger after ledger, and a rival recovers every
other one while it is being written. In the end every acknowledged entry is read and every replica
compared.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from bookie_server.client.settings import ConnectionSettings
from bookkeeper_metadata.foundation.errors import BookKeeperError
from spark_bookkeeper import BookKeeper, ClientSettings, LocalCluster
from spark_bookkeeper.blocking.write_handle import WriteHandle
from spark_bookkeeper.cli.ledgers.verification import ABSENT
from spark_bookkeeper.local.bookie import LocalBookie, wait_until_serving
from spark_bookkeeper.replication.verify import EntryReport, verify_ledger
from tests.integration.processes import eventually
from tests.patience import Deadline, seconds

WAIT_S = 120.0
PATIENT = ClientSettings(
    connection=ConnectionSettings(add_timeout_ms=120_000, reconnect_timeout_ms=60_000)
)
"""A writer that waits for a bookie to come back rather than give it up."""
CHANGING = ClientSettings(
    bookie_wait_timeout_ms=600_000, bookie_quarantine_ms=200, ensemble_change_retry_ms=100
)
"""A writer that gives a bookie up at once and takes any other, the same one too: bookies are killed in
quicker succession than its usual 30 s of mistrust would let it write."""
GROUP = 50
"""Appended at once."""
LEDGER_ENTRIES = 1_000
"""Of the writer that begins ledger after ledger."""
GROWTH = 200
"""Entries that every writer gets acknowledged between two blows."""
PAUSE_S_MAX = 2.0
_BREATH_S = 0.02
"""Between two groups: what counts is the kills, not how much is written to be read again."""


def payload(number: int, owner: str = "") -> bytes:
    """Content that no other entry has; one in ten is of up to 6 KiB, the others are small."""
    head = f"{owner} {number} ".encode()
    seed = hashlib.sha256(head).digest()
    return head + seed * (number % 200 if number % 10 == 0 else number % 10)


@dataclass(frozen=True, slots=True)
class Written:
    """What became of one ledger."""

    ledger_id: int
    acknowledged: int
    """Entries from 0 on."""
    sent: int
    """Entries that were appended; beyond ``acknowledged`` each may be there or not."""


class Load(ABC):
    """A thread that appends until stopped, and what was acknowledged to it."""

    def __init__(self, uri: str, settings: ClientSettings) -> None:
        self.uri = uri
        self.acknowledged = 0
        """Entries, of all ledgers."""
        self.ledgers: list[Written] = []
        """Those that are ended."""
        self.errors: list[Exception] = []
        self._settings = settings
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._append, name=type(self).__name__)
        self._thread.start()

    def grows(self) -> bool:
        """Whether more is acknowledged soon."""
        before = self.acknowledged
        return (
            eventually(lambda: bool(self.errors) or self.acknowledged > before + GROWTH, WAIT_S)
            and not self.errors
        )

    def stop(self) -> None:
        """End the ledger; returns when that is done."""
        self._is_stopping.set()
        self._thread.join()

    def _append(self) -> None:
        try:
            with BookKeeper(self.uri, settings=self._settings) as bk:
                while not self._is_stopping.is_set():
                    self._fill(bk.create_ledger())
        except (BookKeeperError, AssertionError, TimeoutError) as error:
            self.errors.append(error)

    @abstractmethod
    def _fill(self, writer: WriteHandle) -> None:
        """Append to a ledger, end it and note it."""

    def _append_group(self, writer: WriteHandle, first: int) -> int:
        """Append and wait for a group; returns the id that follows."""
        owner = str(writer.ledger_id)
        futures = [writer.append_async(payload(first + at, owner)) for at in range(GROUP)]
        for expected, future in enumerate(futures, first):
            assert future.result(timeout=seconds(WAIT_S)) == expected
            self.acknowledged += 1
        self._is_stopping.wait(_BREATH_S)
        return first + GROUP


class OneLedger(Load):
    """Keeps its ledger from the beginning to the end."""

    def __init__(self, uri: str) -> None:
        super().__init__(uri, PATIENT)

    def _fill(self, writer: WriteHandle) -> None:
        sent = 0
        while not self._is_stopping.is_set():
            sent = self._append_group(writer, sent)
        writer.close()
        self.ledgers.append(Written(writer.ledger_id, sent, sent))


class ManyLedgers(Load):
    """Closes one ledger, has the next recovered by a rival, and so on."""

    def __init__(self, uri: str) -> None:
        super().__init__(uri, CHANGING)

    def _fill(self, writer: WriteHandle) -> None:
        sent = 0
        while sent < LEDGER_ENTRIES and not self._is_stopping.is_set():
            sent = self._append_group(writer, sent)
        if len(self.ledgers) % 2 == 0:
            writer.close()
            self.ledgers.append(Written(writer.ledger_id, sent, sent))
        else:
            self._be_recovered(writer, sent)

    def _be_recovered(self, writer: WriteHandle, sent: int) -> None:
        """A rival fences the ledger while entries are on their way."""
        owner = str(writer.ledger_id)
        late = [writer.append_async(payload(sent + at, owner)) for at in range(GROUP)]
        end = self._recovered_end(writer.ledger_id)
        acknowledged = sent
        for future in late:
            with suppress(BookKeeperError):
                acknowledged = max(acknowledged, future.result(timeout=seconds(WAIT_S)) + 1)
        assert end + 1 >= acknowledged, (writer.ledger_id, end, acknowledged)
        self.acknowledged += acknowledged - sent
        self.ledgers.append(Written(writer.ledger_id, acknowledged, sent + GROUP))
        with suppress(BookKeeperError):
            writer.close()

    def _recovered_end(self, ledger_id: int) -> int:
        """The last entry that a rival found; it tries until enough bookies are there."""
        deadline = Deadline(WAIT_S)
        with BookKeeper(self.uri) as rival:
            while True:
                try:
                    return rival.open_ledger(ledger_id, recovery=True).last_add_confirmed
                except BookKeeperError:
                    if deadline.has_passed:
                        raise


class Campaign:
    """Blow after blow at a cluster of three, drawn by a seed."""

    def __init__(self, cluster: LocalCluster, seed: int) -> None:
        self._cluster = cluster
        self._choose = random.Random(seed)
        self.kills = 0
        self.pauses = 0
        self.lost = 0
        """Acknowledged entries that a reader did not get."""
        self.ledgers = 0
        self.acknowledged = 0

    def __str__(self) -> str:
        return (
            f"kills={self.kills} pauses={self.pauses} ledgers={self.ledgers} "
            f"acknowledged={self.acknowledged} lost={self.lost}"
        )

    def run(self, kills: int, minutes: float = 60.0) -> None:
        """Kill until it were so many or so long, and verify.

        Raises:
            AssertionError: something is not as it must be.
        """
        end_s = time.monotonic() + 60 * minutes
        uri = self._cluster.metadata_service_uri
        loads: list[Load] = [OneLedger(uri), ManyLedgers(uri)]
        blows = (self._kill, self._kill, self._kill_in_mid_start, self._stop, self._keep_away)
        try:
            while self.kills < kills and time.monotonic() < end_s:
                self._wait_for(loads)
                self._choose.choice(blows)(loads)
            self._wait_for(loads)
        finally:
            for load in loads:
                load.stop()
        assert [load.errors for load in loads] == [[]] * len(loads)
        # What was in no memory is on disk.
        self._kill_all()
        wait_until_serving(self._cluster.bookies)
        self._verify([each for load in loads for each in load.ledgers])
        assert self.lost == 0

    def _wait_for(self, loads: Sequence[Load]) -> None:
        for load in loads:
            has_grown = load.grows()
            assert all(bookie.failure() is None for bookie in self._cluster.bookies)
            assert has_grown, (load, load.errors)

    def _some(self) -> list[LocalBookie]:
        count = self._choose.choice((1, 1, 2, 3))
        return self._choose.sample(self._cluster.bookies, count)

    def _kill_these(self, victims: Sequence[LocalBookie]) -> None:
        for bookie in victims:
            bookie.kill()
        self.kills += len(victims)

    def _kill(self, _: Sequence[Load]) -> None:
        victims = self._some()
        self._kill_these(victims)
        for bookie in victims:
            bookie.spawn()

    def _kill_all(self) -> None:
        self._kill_these(self._cluster.bookies)
        for bookie in self._cluster.bookies:
            bookie.spawn()

    def _kill_in_mid_start(self, loads: Sequence[Load]) -> None:
        """Once more, before or just after it serves."""
        victims = self._some()
        self._kill_these(victims)
        for bookie in victims:
            bookie.spawn()
        self._wait_a_while()
        self._kill_these(victims)
        for bookie in victims:
            bookie.spawn()

    def _stop(self, _: Sequence[Load]) -> None:
        """SIGSTOP; some go on and some are killed as they stand."""
        victims = self._some()
        for bookie in victims:
            bookie.pause()
        self.pauses += len(victims)
        self._wait_a_while()
        for bookie in victims:
            if self._choose.random() < 0.5:
                self._kill_these([bookie])
                bookie.spawn()
            else:
                bookie.resume()

    def _keep_away(self, loads: Sequence[Load]) -> None:
        """One of three is enough to lose at any time."""
        victim = self._choose.choice(self._cluster.bookies)
        self._kill_these([victim])
        for load in loads:
            assert load.grows(), load.errors
        victim.spawn()

    def _wait_a_while(self) -> None:
        threading.Event().wait(self._choose.uniform(0, PAUSE_S_MAX))

    def _verify(self, ledgers: Sequence[Written]) -> None:
        with BookKeeper(self._cluster.metadata_service_uri) as bk:
            for ledger in ledgers:
                self.ledgers += 1
                self.acknowledged += ledger.acknowledged
                self._read(bk, ledger)
                for report in reports(bk, ledger.ledger_id):
                    assert report.below_ack_quorum == ()
                    assert {defect.what for defect in report.defects} <= ABSENT

    def _read(self, bk: BookKeeper, ledger: Written) -> None:
        owner = str(ledger.ledger_id)
        with bk.open_ledger(ledger.ledger_id) as reader:
            end = reader.last_add_confirmed
            self.lost += max(0, ledger.acknowledged - end - 1)
            assert reader.is_closed
            assert end < ledger.sent
            expected = 0
            for entry in reader.read(0, end) if end >= 0 else ():
                assert entry.entry_id == expected
                self.lost += bytes(entry.payload) != payload(expected, owner)
                expected += 1
            assert expected == end + 1


def reports(bk: BookKeeper, ledger_id: int) -> list[EntryReport]:
    """What comparing all replicas of a ledger's entries finds."""

    async def collect() -> list[EntryReport]:
        return [report async for report in verify_ledger(ledgers, ledger_id)]

    ledgers = bk.ledger_client
    return bk.run(collect())


def main() -> int:
    """Run one campaign; it ends with a traceback when something acknowledged is lost."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.integration.crash_campaign", description=__doc__
    )
    parser.add_argument("--kills", type=int, default=400)
    parser.add_argument("--minutes", type=float, default=60.0, help="not longer than that")
    parser.add_argument("--seed", type=int, help="drawn from the clock without it")
    asked = parser.parse_args()
    seed = asked.seed if asked.seed is not None else time.time_ns() // 1_000_000 % 10**9
    sys.stdout.write(f"seed={seed}\n")
    with LocalCluster(bookies=3) as cluster:
        campaign = Campaign(cluster, seed)
        try:
            campaign.run(asked.kills, asked.minutes)
        finally:
            sys.stdout.write(f"seed={seed} {campaign}\n")
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
