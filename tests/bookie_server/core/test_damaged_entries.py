"""What could not be read is known as long as it cannot, and costs little however much it is."""

from __future__ import annotations

from random import Random

import pytest

from bookie_server.core import damaged_entries
from bookie_server.core.damaged_entries import IDS_MAX, DamagedEntries


def test_it_is_a_set_of_entries_by_ledger() -> None:
    damaged, model, random = DamagedEntries(), set[tuple[int, int]](), Random(1)
    for _ in range(2_000):
        ledger_id, first = random.randrange(3), random.randrange(100)
        ids = range(first, first + random.choice((1, 3, 60)))
        match random.randrange(5):
            case 0 | 1:
                damaged.add(ledger_id, ids)
                model |= {(ledger_id, each) for each in ids}
            case 2:
                damaged.discard(ledger_id, ids)
                model -= {(ledger_id, each) for each in ids}
            case 3:
                some = sorted(random.sample(range(100), 10))
                damaged.discard(ledger_id, some)
                model -= {(ledger_id, each) for each in some}
            case _ if random.random() < 0.05:
                damaged.forget(ledger_id)
                model = {pair for pair in model if pair[0] != ledger_id}
        assert len(damaged) == len(model)
        assert {(led, each) for led in damaged.ledgers for each in damaged.of(led)} == model


def test_only_so_many_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(damaged_entries, "IDS_MAX", 10)
    damaged = DamagedEntries()
    for ledger_id in (1, 2, 3):
        damaged.add(ledger_id, range(7))
    assert 7 < len(damaged) <= 10
    assert 3 not in damaged.ledgers

    damaged.discard(1, range(1 << 40))
    damaged.add(3, range(7))

    assert damaged.of(3) == set(range(7)), "there is room for the others as soon as some are mended"


def test_each_has_its_turn_though_none_is_ever_mended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their other copies are lost as well; what lies behind them can be mended, and is found by no other look."""
    monkeypatch.setattr(damaged_entries, "IDS_MAX", 10)
    walks = 5  # of nine or ten each
    there = {1: range(3), 4: range(35), 7: range(2, 6), 9: range(1)}
    damaged, random, had = DamagedEntries(), Random(1), set[tuple[int, int]]()
    for _ in range(walks):
        damaged.begin_turn()
        start = random.randrange(len(there))
        for ledger_id in (*list(there)[start:], *list(there)[:start]):
            for first in range(0, len(there[ledger_id]), 3):
                damaged.add(ledger_id, there[ledger_id][first : first + 3])
                assert len(damaged) <= 10
        had |= {
            (ledger_id, each) for ledger_id in damaged.ledgers for each in damaged.of(ledger_id)
        }

    assert len(had) == sum(map(len, there.values()))


def test_a_turn_lasts_until_the_next_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers find the same damage again and again, and it must not displace what is being mended."""
    monkeypatch.setattr(damaged_entries, "IDS_MAX", 10)
    damaged = DamagedEntries()
    damaged.add(2, range(20))
    known = set(damaged.of(2))

    for _ in range(3):
        damaged.add(2, range(20))
        damaged.add(3, range(5))
    assert (damaged.ledgers, damaged.of(2)) == ((2,), known)
    damaged.begin_turn()
    assert damaged.of(2) == known, "and as long as there is room for both"

    damaged.add(2, range(20))
    assert damaged.of(2) == set(range(max(known) + 1, max(known) + 10))


@pytest.mark.slow
def test_very_many_in_very_many_ledgers_cost_little() -> None:
    """The order of turns is looked for by the ten thousand, not at every entry without room."""
    damaged = DamagedEntries()
    for ledger_id in range(IDS_MAX * 3 // 2, 0, -1):
        damaged.add(ledger_id, (0,))

    assert IDS_MAX * 4 // 5 < len(damaged) <= IDS_MAX
