"""Placement: which bookies form a ledger's first ensemble, and who replaces one that failed.

Uniformly random over the writable bookies, so that load spreads without anyone keeping count;
the randomness is passed in. Bookies that failed a writer lately are avoided, but taken rather than
none. Source: Apache ``DefaultEnsemblePlacementPolicy``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Protocol

from spark_bookkeeper.ledger.errors import NotEnoughBookiesError


class Sampler(Protocol):
    """What placement needs of ``random.Random``."""

    def sample(self, population: Sequence[str], k: int) -> list[str]: ...


def choose_ensemble(
    ensemble_size: int,
    writable: Collection[str],
    random: Sampler,
    *,
    avoided: AbstractSet[str] = frozenset(),
) -> tuple[str, ...]:
    """``ensemble_size`` distinct bookies.

    Raises:
        NotEnoughBookiesError: fewer are writable; nothing was sent.
    """
    candidates = sorted(writable)  # the same seed draws the same ensemble everywhere
    if len(candidates) < ensemble_size:
        raise NotEnoughBookiesError(ensemble_size, tuple(candidates))
    return tuple(_choose(ensemble_size, candidates, avoided, random))


@dataclass(frozen=True, slots=True)
class Replacement:
    """An ensemble with new bookies in some positions, which have to be sent everything."""

    ensemble: tuple[str, ...]
    positions: tuple[int, ...]
    """Ascending; empty: no bookie was available."""


def replace_bookies(
    ensemble: tuple[str, ...],
    failed: Mapping[int, str],
    writable: Collection[str],
    random: Sampler,
    *,
    avoided: AbstractSet[str] = frozenset(),
) -> Replacement:
    """Replace as many ``failed`` positions as there are bookies to replace them with.

    A bookie outside the ensemble is preferred. Failing that a member that failed returns to its own
    position, once it is writable and no longer ``avoided``; it has to be sent everything again.
    """
    spare = sorted(set(writable).difference(ensemble))
    chosen = _choose(min(len(failed), len(spare)), spare, avoided, random)
    members = list(ensemble)
    positions: list[int] = []
    for position in sorted(failed):
        if chosen:
            members[position] = chosen.pop(0)
        # A bookie outside is better than one that just failed, but one that came back is better
        # than none: with E = number of bookies it is the only candidate there will ever be.
        elif failed[position] not in writable or failed[position] in avoided:
            continue
        positions.append(position)
    return Replacement(tuple(members), tuple(positions))


def _choose(
    count: int, candidates: Sequence[str], avoided: AbstractSet[str], random: Sampler
) -> list[str]:
    preferred = [bookie_id for bookie_id in candidates if bookie_id not in avoided]
    if len(preferred) >= count:
        return random.sample(preferred, count)
    # Too few without the suspects. A suspicion is a guess, and a failed write is a fact.
    second = [bookie_id for bookie_id in candidates if bookie_id in avoided]
    return random.sample(preferred, len(preferred)) + random.sample(second, count - len(preferred))
