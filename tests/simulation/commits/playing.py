"""Plays directed schedules: all of them, from every file that registers some."""

from __future__ import annotations

from tests.simulation.commits import directed, directed_upkeep
from tests.simulation.commits.model import Outcome, run_world
from tests.simulation.commits.registry import DIRECTED
from tests.simulation.commits.stage import Stage
from tests.simulation.commits.world import World
from tests.simulation.kit.choices import Choices

REGISTERING = (directed, directed_upkeep)
"""Imported for what they register."""


def run_directed(name: str, *, is_traced: bool = False) -> Outcome:
    """Play one schedule, heal, collect, check."""
    schedule = DIRECTED[name]

    async def act(world: World) -> None:
        world.script.is_late_kept = True
        stage = Stage(world)
        await schedule.play(stage)
        for hold in world.script.holds:
            hold.release()
        for task in stage.begun:
            await task

    return run_world(Choices(0, {}), act, is_traced=is_traced, inline_bytes=schedule.inline_bytes)
