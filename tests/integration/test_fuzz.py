"""Whatever somebody sends to a bookie's port, it answers by the protocol and goes on for everybody else.

Valid requests are changed field by field, frames cut, flipped, invented and sent in floods, streams cut
off in the middle. The seed is printed; ``FUZZ_SEED=n`` runs it again.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from random import SystemRandom

import pytest

from bookie_server.wire import add_frames, codec
from bookie_server.wire.messages import Status
from spark_bookkeeper import LocalCluster
from spark_bookkeeper.local.bookie import LocalBookie
from tests.doubles.records import encoded_section
from tests.integration.fuzzed import CARRIERS, Answers, Entry, Socket, connected, entries_of
from tests.integration.mutations import KEPT, Mutator
from tests.integration.processes import start_again

pytestmark = [pytest.mark.integration, pytest.mark.slow]

BATCH = 50
"""Requests between two looks at what the bookie makes of the others."""
SERVED_WITHIN_S = 1.0
"""After a batch, everything that a client asks of a bookie that has nothing else to do."""
RSS_MIB_MAX = 512
"""What a bookie promises under any clients; these come one at a time."""


def seed_of_run() -> int:
    seed = int(os.environ.get("FUZZ_SEED", "0")) or SystemRandom().randrange(1, 10**9)
    sys.stdout.write(f"FUZZ_SEED={seed}\n")
    return seed


class Fuzz:
    """One bookie under fire."""

    def __init__(self, bookie: LocalBookie, seed: int, carrier: str) -> None:
        self.bookie = bookie
        self.carrier = carrier
        self.mutator = Mutator(seed)
        self.answers = Answers()
        self.next_kept = 0
        self.kept: dict[int, dict[int, Entry]] = {ledger_id: {} for ledger_id in KEPT}
        self.rss_mib = 0

    def batch(self) -> None:
        """Requests of every kind over one connection, one after the other."""
        with connected(self.bookie, self.answers, carrier=self.carrier) as connection:
            for _ in range(BATCH):
                self.send(connection)

    def send(self, connection: Socket) -> None:
        make, rng = self.mutator, self.mutator.rng
        match rng.choices(range(9), (40, 20, 10, 10, 5, 10, 4, 2, 1))[0]:
            case 0:
                connection.write([make.frame() for _ in range(rng.choice((1, 1, 4)))])
            case 1:
                connection.read([make.mutated(make.read) for _ in range(rng.choice((1, 1, 10)))])
            case 2:
                connection.poll(make.mutated(make.read_lac))
            case 3:
                reply = connection.ask("WriteLac", make.mutated(make.write_lac))
                if reply is not None:
                    self.answers.count(codec.parse_status(reply))
            case 4:
                connection.ask("Info", make.mutated(make.header))
            case 5:
                reply = connection.ask("ListEntries", make.mutated(make.list_entries))
                if reply is not None:
                    self.answers.count(codec.parse_entry_list(reply).status)
            case 6:
                connection.write_and_go([make.frame(), make.frame()])
            case 7:
                frame, messages = make.pieces()
                connection.write_messages([frame, *messages], messages)
            case _:
                connection.write([make.flood()])

    def look(self) -> None:
        """An honest client is served in time, and finds what it wrote before."""
        assert self.bookie.failure() is None
        answers = Answers()
        with connected(self.bookie, answers, SERVED_WITHIN_S, carrier=self.carrier) as connection:
            ledger_id = self.mutator.rng.choice(KEPT)
            assert connection.entries(ledger_id) == self.kept[ledger_id]
            sent = encoded_section([os.urandom(100)], self.next_kept, ledger_id=ledger_id)
            connection.write([sent.data])
            assert answers.statuses.get(Status.OK) == 1, answers.statuses
            (section,) = add_frames.parse_frame(sent.data)
            self.kept[ledger_id] |= entries_of(section.run)
            self.next_kept += 1
        status = Path(f"/proc/{self.bookie.pid}/status").read_text(encoding="utf-8")
        (peak,) = (line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:"))
        self.rss_mib = max(self.rss_mib, int(peak) // 1024)

    def check_all(self) -> None:
        """Nobody's bytes have changed, and everything acknowledged is there."""
        with connected(self.bookie, self.answers, carrier=self.carrier) as connection:
            for ledger_id, entries in self.kept.items():
                assert connection.entries(ledger_id) == entries
            acknowledged = self.answers.acknowledged
            for ledger_id in {ledger_id for ledger_id, _ in acknowledged}:
                found = connection.entries(ledger_id)
                for (owner, entry_id), entries_acknowledged in acknowledged.items():
                    if owner == ledger_id:
                        assert found[entry_id] in entries_acknowledged, (ledger_id, entry_id)


def fuzz(requests: int, carrier: str) -> None:
    with LocalCluster(bookies=1) as cluster:
        (bookie,) = cluster.bookies
        under_fire = Fuzz(bookie, seed_of_run(), carrier)
        for _ in range(requests // BATCH):
            under_fire.batch()
            under_fire.look()
        under_fire.check_all()
        bookie.kill()
        start_again(bookie)
        under_fire.check_all()
        log = bookie.log_path.read_text(encoding="utf-8")
        sys.stdout.write(f"{under_fire.answers.statuses} rss_mib={under_fire.rss_mib}\n")

    # then nothing was a surprise to the bookie, and all answers are a healthy one's
    assert "Traceback" not in log, log[log.index("Traceback") - 500 :][:5_000]
    assert not {Status.UNKNOWN, Status.LIMBO} & set(under_fire.answers.statuses)
    assert len(under_fire.answers.acknowledged) > requests / 20
    assert under_fire.rss_mib <= RSS_MIB_MAX


@pytest.mark.parametrize("carrier", CARRIERS)
def test_a_bookie_survives_what_is_not_meant_for_it(carrier: str) -> None:
    fuzz(300, carrier)


@pytest.mark.full
@pytest.mark.parametrize("carrier", CARRIERS)
def test_a_bookie_survives_a_long_siege(carrier: str) -> None:
    fuzz(10_000, carrier)
