"""Every decision of one schedule: drawn from a seed and recorded, or replayed from a record.

Each subject (the network to one bookie, the writer, ...) draws from a stream of its own, so a new
draw in one does not shift the others. In every draw **0 is the harmless answer** - the shortest
delay, no fault - and a record that runs out answers 0: shrinking a schedule is setting numbers to 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from zlib import crc32

Record = Mapping[str, Sequence[int]]
"""By label: what was drawn, in order."""


class Stream:
    """The decisions about one subject."""

    __slots__ = ("_draw", "_script", "taken")

    def __init__(self, random: Random | None, script: Sequence[int]) -> None:
        self._draw = None if random is None else random.random
        self._script = script
        self.taken: list[int] = []

    def below(self, limit: int) -> int:
        """A number in ``0 .. limit - 1``."""
        taken = self.taken
        if self._draw is not None:
            value = int(self._draw() * limit)
        else:
            at = len(taken)
            value = min(self._script[at], limit - 1) if at < len(self._script) else 0
        taken.append(value)
        return value

    def one_in(self, odds: int) -> bool:
        """True once in ``odds`` times; never when ``odds`` is 0."""
        return odds > 0 and self.below(odds) == odds - 1

    def between(self, least: int, most: int) -> int:
        """A number in ``least .. most``."""
        return least + self.below(most - least + 1)

    def sample(self, population: Sequence[str], k: int) -> list[str]:
        """``k`` different members in drawn order: what placement needs of ``random.Random``."""
        left = list(population)
        return [left.pop(self.below(len(left))) for _ in range(k)]


class Choices:
    """The streams of one schedule."""

    def __init__(self, seed: int, record: Record | None = None) -> None:
        self.seed = seed
        self._record = record
        self._streams: dict[str, Stream] = {}

    def stream(self, label: str) -> Stream:
        """The stream of that label, always the same one."""
        stream = self._streams.get(label)
        if stream is None:
            if self._record is None:
                stream = Stream(Random((self.seed << 32) + crc32(label.encode())), ())
            else:
                stream = Stream(None, self._record.get(label, ()))
            self._streams[label] = stream
        return stream

    @property
    def record(self) -> dict[str, list[int]]:
        """What was drawn so far; trailing zeros say nothing and are left out."""
        found: dict[str, list[int]] = {}
        for label, stream in self._streams.items():
            taken = list(stream.taken)
            while taken and taken[-1] == 0:
                taken.pop()
            if taken:
                found[label] = taken
        return found
