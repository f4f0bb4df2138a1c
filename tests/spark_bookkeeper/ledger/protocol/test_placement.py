"""Which members of a new ledger's ensemble are held because they do not answer."""

from __future__ import annotations

from itertools import combinations

from spark_bookkeeper.ledger.protocol.placement import FirstEnsemble, without_silent
from spark_bookkeeper.ledger.protocol.quorum import QuorumConfig

MEMBERS = ("b0", "b1", "b2", "b3", "b4")


def test_places_are_held_while_every_write_set_keeps_enough_that_answer() -> None:
    """Every set of silent ones, against a dumb twin that looks at each write set by itself."""
    wanted = QuorumConfig(5, 3, 2)
    write_sets = [{(first + place) % 5 for place in range(3)} for first in range(5)]
    for count in range(6):
        for silent in combinations(range(5), count):
            for writable_min, needed in ((0, 2), (2, 2), (3, 3), (9, 3)):
                first = FirstEnsemble(MEMBERS)
                found = without_silent(first, [MEMBERS[p] for p in silent], wanted, writable_min)

                is_enough = all(len(each.difference(silent)) >= needed for each in write_sets)
                held = frozenset(MEMBERS[p] for p in silent) if is_enough else frozenset[str]()
                assert found == FirstEnsemble(MEMBERS, held)


def test_places_that_were_held_before_stay_so_and_count() -> None:
    wanted = QuorumConfig(4, 4, 2)
    first = FirstEnsemble(MEMBERS[:4], frozenset({"b0"}))

    assert without_silent(first, ["b1"], wanted, 0).held == {"b0", "b1"}
    assert without_silent(first, ["b1", "b2"], wanted, 0) == first
