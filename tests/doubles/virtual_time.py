"""Coroutines on the simulation's loop, outside of its worlds."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from tests.simulation.kit.loop import SimLoop

T = TypeVar("T")


def on_virtual_time(main: Coroutine[Any, Any, T]) -> T:
    """Run it in no time, whatever it waits for; a callback that failed fails it."""
    with asyncio.Runner(loop_factory=SimLoop) as runner:
        result = runner.run(main)
        loop = runner.get_loop()
        assert isinstance(loop, SimLoop)
        assert loop.failures == []
        return result
