"""Placement: which bookies form a ledger's first ensemble, and who replaces one that failed.

Uniformly random over the writable bookies, so that load spreads without anyone keeping count;
the randomness is passed in. Bookies that failed a writer lately are avoided, but taken rather than
none. Source: Apache ``DefaultEnsemblePlacementPolicy``.

A dead bookie must not stop new ledgers, and E, WQ and AQ of a ledger never change after its creation. So
where fewer than E bookies are writable, a ledger is striped over fewer of them, and where fewer than
WQ are, the missing places are *held* for bookies that are known but away. A held member is to the
writer one that has failed already; what it misses is ordinary under-replication.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Protocol

from spark_bookkeeper.ledger.errors import NotEnoughBookiesError
from spark_bookkeeper.ledger.protocol.quorum import QuorumConfig


class Sampler(Protocol):
    """What placement needs of ``random.Random``."""

    def sample(self, population: Sequence[str], k: int) -> list[str]: ...


@dataclass(frozen=True, slots=True)
class FirstEnsemble:
    """The members of a new ledger; their number is its ensemble size."""

    members: tuple[str, ...]
    held: frozenset[str] = frozenset()
    """Those that are away: nothing is sent to them until they are back."""


def choose_ensemble(
    wanted: QuorumConfig,
    writable: Collection[str],
    random: Sampler,
    *,
    away: Collection[str] = (),
    avoided: AbstractSet[str] = frozenset(),
    writable_min: int = 0,
) -> FirstEnsemble:
    """Distinct bookies for a new ledger: E of them, or at least WQ with places held for ``away`` ones.

    Every write set has at least AQ writable members, or ``writable_min`` if that is more.

    Raises:
        NotEnoughBookiesError: fewer are writable, or fewer are known at all; nothing was sent.
    """
    candidates = sorted(writable)  # the same seed draws the same ensemble everywhere
    size = min(wanted.ensemble_size, max(len(candidates), wanted.write_quorum))
    missing = max(0, size - len(candidates))
    absent = sorted(set(away).difference(candidates))
    if missing > len(absent):
        raise NotEnoughBookiesError(
            wanted.ensemble_size,
            tuple(candidates),
            detail="no more were ever known; ask for a smaller ensemble size and write quorum",
        )
    # Where a place is held, all the writable ones are members, and each write set is all of them.
    needed = max(wanted.ack_quorum, min(writable_min, wanted.write_quorum))
    if missing and len(candidates) < needed:
        raise NotEnoughBookiesError(needed, tuple(candidates), tuple(absent))
    held = _choose(missing, absent, avoided, random)
    chosen = _choose(size - missing, candidates, avoided, random)
    return FirstEnsemble((*chosen, *held), frozenset(held))


def without_silent(
    first: FirstEnsemble, silent: Collection[str], wanted: QuorumConfig, writable_min: int
) -> FirstEnsemble:
    """Hold the places of members that are registered and do not answer, if those left are enough.

    They are as many as :func:`choose_ensemble` wants. Else everybody stays: a suspicion may be wrong.
    """
    held = first.held.union(silent)
    needed = max(wanted.ack_quorum, min(writable_min, wanted.write_quorum))
    quorum = QuorumConfig(len(first.members), wanted.write_quorum, needed)
    usable = {p for p, bookie_id in enumerate(first.members) if bookie_id not in held}
    return FirstEnsemble(first.members, held) if quorum.can_acknowledge(usable) else first


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
    position, once it is ``writable``; it has to be sent everything again. Those that are ``avoided``
    come last, be they members or not.
    """
    spare = sorted(set(writable).difference(ensemble))
    chosen = _choose(min(len(failed), len(spare)), spare, avoided, random)
    trusted = [bookie_id for bookie_id in chosen if bookie_id not in avoided]
    suspects = [bookie_id for bookie_id in chosen if bookie_id in avoided]
    is_back = {p: b in writable and b not in avoided for p, b in failed.items()}
    members = list(ensemble)
    positions: list[int] = []
    # Where those outside are too few for all, first the positions that nobody else can take.
    for position in sorted(failed, key=lambda p: (is_back[p], p)):
        # A bookie outside is better than one that just failed, but one that came back is better
        # than none: with E = number of bookies it is the only candidate there will ever be.
        if trusted:
            members[position] = trusted.pop(0)
        elif is_back[position]:
            pass
        elif suspects:
            members[position] = suspects.pop(0)
        elif failed[position] not in writable:
            continue
        positions.append(position)
    return Replacement(tuple(members), tuple(sorted(positions)))


def _choose(
    count: int, candidates: Sequence[str], avoided: AbstractSet[str], random: Sampler
) -> list[str]:
    preferred = [bookie_id for bookie_id in candidates if bookie_id not in avoided]
    if len(preferred) >= count:
        return random.sample(preferred, count)
    # Too few without the suspects. A suspicion is a guess, and a failed write is a fact.
    second = [bookie_id for bookie_id in candidates if bookie_id in avoided]
    return random.sample(preferred, len(preferred)) + random.sample(second, count - len(preferred))
