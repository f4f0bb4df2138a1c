"""Crash states: what a disk may hold after a power loss at one moment, each distinct one once.

A state is the durable names and bytes. Every prefix of operations is a moment; what was not synced is
kept, dropped or torn, each thing by itself, so later operations survive without earlier ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from tests.simulation.kit.files import SimFileSystem


class CrashStates:
    """Those of one or more histories; ``draws`` are tried at every moment, beside the extremes.

    Of the new ones a random ``share`` is judged, for a judgement costs more than a state.
    """

    def __init__(self, random: Random, draws: int, share: float = 1) -> None:
        self.random = random
        self.share = share
        self.met = 0
        """New states so far, judged or not."""
        self._draws = draws
        self._judged: set[tuple[object, ...]] = set()
        self._found: set[tuple[object, ...]] = set()

    def __len__(self) -> int:
        """Distinct states that were judged so far."""
        return len(self._found)

    def of(
        self, files: SimFileSystem, promised: object = None, beside: object = None
    ) -> Iterator[SimFileSystem]:
        """What the next process may find if the power goes now.

        A state comes again once more is ``promised``: what was lawfully missing no longer is. What is
        ``beside`` the disks, as the metadata, is part of a state.
        """
        for image in files.crash_images(self.random, self._draws):
            if self.is_news(image, promised, beside):
                yield image

    def is_news(self, image: SimFileSystem, promised: object = None, beside: object = None) -> bool:
        """Whether a state was not judged before, in the face of the same promises."""
        state = image.digest(), beside
        if state not in self._found:
            self.met += 1
            if self.random.random() >= self.share:
                return False
        self._found.add(state)
        before = len(self._judged)
        self._judged.add((*state, promised))
        return len(self._judged) > before
