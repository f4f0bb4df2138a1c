"""What could not be read is known as long as it cannot, and costs little however much it is."""

from __future__ import annotations

from random import Random

import pytest

from bookie_server.core import damaged_entries
from bookie_server.core.damaged_entries import DamagedEntries


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
    damaged.add(1, range(7))
    damaged.add(2, range(7))
    damaged.add(3, range(7))
    assert len(damaged) == 10

    damaged.discard(1, range(1 << 40))

    assert len(damaged) == 3
    assert damaged.ledgers == (2,)
