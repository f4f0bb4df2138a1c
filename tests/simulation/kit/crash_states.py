"""Crash states: what a disk may hold after a power loss at one moment, each distinct one once.

A state is the durable names and bytes. Every prefix of operations is a moment; what was not synced is
kept, dropped or torn, each thing by itself, so later operations survive without earlier ones.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from random import Random

from tests.simulation.kit.files import SimFileSystem


class CrashStates:
    """Those of one or more histories; ``draws`` are tried at every moment, beside the two extremes."""

    def __init__(self, random: Random, draws: int) -> None:
        self._random = random
        self._draws = draws
        self._judged: set[tuple[bytes, object]] = set()
        self._images: set[bytes] = set()

    def __len__(self) -> int:
        """Distinct states so far."""
        return len(self._images)

    def of(self, files: SimFileSystem, promised: object = None) -> Iterator[SimFileSystem]:
        """What the next process may find if the power goes now.

        A state comes again once more is ``promised``: what was lawfully missing no longer is.
        """
        for image in files.crash_images(self._random, self._draws):
            digest = _digest(image)
            self._images.add(digest)
            if (digest, promised) not in self._judged:
                self._judged.add((digest, promised))
                yield image


def _digest(image: SimFileSystem) -> bytes:
    found = hashlib.blake2b(digest_size=12)
    for path in sorted(image.names_now):
        found.update(f"{path}\0{len(image.names_now[path].durable)}\0".encode())
        found.update(image.names_now[path].durable)
    return found.digest()
