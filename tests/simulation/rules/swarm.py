"""What one schedule is like: its ledger, its faults and their rates, drawn once (a "swarm").

Every schedule enables a few faults only: all of them always would hide the bugs that need quiet
elsewhere. Damage stays inside the fault atlas: media are lost at fewer bookies than an ack quorum,
and a bookie that lost something comes back in limbo. Beyond that a violation would say
nothing about the protocol.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tests.simulation.kit.choices import Stream

QUORUMS = (
    (3, 3, 2), (3, 2, 2), (5, 3, 2), (4, 4, 3), (2, 2, 1), (3, 3, 3), (4, 3, 2), (2, 2, 2), (1, 1, 1),
    (3, 3, 2), (3, 3, 2), (4, 2, 2),
)  # fmt: skip
"""E, WQ, AQ. The configuration people use comes up more often than the others."""

TRIGGERS = (
    "nothing", "fence admitted", "fence durable", "fence answered", "negative answered",
    "add admitted", "add answered", "recovery covered", "restarted",
)  # fmt: skip
"""Moments at which a bookie may lose its power, or something held back is let go."""

CHAOS_US = 30_000
"""Faults happen before; then everything is healed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Swarm:
    """One schedule's ledger and faults. Odds are "once in so many", 0 is never."""

    ensemble_size: int
    write_quorum: int
    ack_quorum: int
    spares: int
    """Bookies beyond the first ensemble."""
    appends: int
    append_interval_us: int
    writer_ends: int
    """0: closes when done; 1: stays open; 2: dies; 3: pauses and goes on as a zombie."""
    writer_ends_us: int
    recoverers: int
    recovery_us: int
    """When the first recoverer begins."""
    recovery_spread_us: int
    recoverer_dies: int
    """Odds that a recoverer dies before its next step."""
    sync_us: int
    slow: int
    """Odds that a message takes long, per 1024."""
    lost: int
    """Per 1024, for requests, and for replies."""
    doubled: int
    held: int
    """Writer's adds held back until ``release`` happens, per 1024."""
    release: str
    timeout_us: int
    partitions: int
    """Bookies cut off from one client for a while."""
    crashes: int
    crash_trigger: str
    crash_odds: int
    """That a bookie loses its power at ``crash_trigger``."""
    media_losses: int
    register_lost: int
    """Odds that a reply of the metadata register is lost."""
    register_us: int
    read_only: int
    """Odds that a bookie refuses an add as read-only."""
    quorum_timeout_us: int
    """After which the writer ends with an entry that is not acknowledged; 0: it waits."""
    rest_us: int
    """After which a writer at rest tells its LAC by itself; 0: it does not."""

    @property
    def bookie_ids(self) -> tuple[str, ...]:
        return tuple(f"b{number}" for number in range(self.ensemble_size + self.spares))


def draw_swarm(draw: Stream) -> Swarm:
    """A swarm; all zeros are three healthy bookies, one entry and one recoverer."""
    ensemble_size, write_quorum, ack_quorum = QUORUMS[draw.below(len(QUORUMS))]
    appends = draw.between(1, 6)
    interval_us = (300, 100, 1_000, 2_500)[draw.below(4)]
    writing_us = appends * interval_us + 1_500
    swarm = Swarm(
        ensemble_size=ensemble_size,
        write_quorum=write_quorum,
        ack_quorum=ack_quorum,
        spares=draw.below(3),
        appends=appends,
        append_interval_us=interval_us,
        writer_ends=draw.below(4),
        writer_ends_us=draw.below(writing_us),
        recoverers=draw.between(1, 3),
        # Over the time the writer writes: most of what can go wrong needs both at work.
        recovery_us=draw.below(writing_us),
        recovery_spread_us=(0, 500, 3_000, 10_000)[draw.below(4)],
        recoverer_dies=(0, 0, 40)[draw.below(3)],
        sync_us=(200, 50, 1_500)[draw.below(3)],
        slow=(0, 60, 250)[draw.below(3)],
        lost=(0, 0, 15, 60)[draw.below(4)],
        doubled=(0, 0, 80)[draw.below(3)],
        held=(0, 0, 120, 400)[draw.below(4)],
        release=TRIGGERS[draw.below(len(TRIGGERS))],
        timeout_us=(6_000, 2_000, 25_000)[draw.below(3)],
        partitions=max(0, draw.below(4) - 1),
        crashes=max(0, draw.below(4) - 1),
        crash_trigger=TRIGGERS[draw.below(len(TRIGGERS))],
        crash_odds=(0, 2, 6)[draw.below(3)],
        media_losses=draw.below(ack_quorum) if draw.one_in(4) else 0,
        register_lost=(0, 0, 5)[draw.below(3)],
        register_us=(200, 1_500)[draw.below(2)],
        read_only=(0, 0, 0, 30)[draw.below(4)],
        quorum_timeout_us=(0, 0, 0, 4_000)[draw.below(4)],
        rest_us=(0, 400)[draw.below(2)],
    )
    return _ambush(swarm) if draw.one_in(6) else swarm


def _ambush(swarm: Swarm) -> Swarm:
    """The moment at which fences are lost, with what waits for it.

    A bookie loses its power when it has just answered a recovery, its journal is slow, and adds of
    the writer that were held back arrive when it is back. Chance alone arranges this about once in
    a hundred thousand schedules; two historical losses of data need it (#2614, BOOKKEEPER-500).
    """
    trigger = swarm.crash_trigger
    return replace(
        swarm,
        held=max(swarm.held, 300),
        release="restarted",
        timeout_us=25_000,
        crashes=max(swarm.crashes, 1),
        crash_trigger=trigger if trigger.startswith("fence") else "negative answered",
        crash_odds=2,
        sync_us=1_500,
        lost=0,
    )
