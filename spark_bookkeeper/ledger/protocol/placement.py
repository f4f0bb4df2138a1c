"""Placement: which bookies form a ledger's first ensemble.

Uniformly random over the writable bookies, so that load spreads without anyone keeping count;
the randomness is passed in. Source: Apache ``DefaultEnsemblePlacementPolicy``.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from metadata.errors import NotEnoughBookiesError


class Sampler(Protocol):
    """What placement needs of ``random.Random``."""

    def sample(self, population: Sequence[str], k: int) -> list[str]: ...


def choose_ensemble(
    ensemble_size: int, writable: Collection[str], random: Sampler
) -> tuple[str, ...]:
    """``ensemble_size`` distinct bookies.

    Raises:
        NotEnoughBookiesError: fewer are writable; nothing was sent.
    """
    candidates = sorted(writable)  # the same seed draws the same ensemble everywhere
    if len(candidates) < ensemble_size:
        raise NotEnoughBookiesError(ensemble_size, tuple(candidates))
    return tuple(random.sample(candidates, ensemble_size))
