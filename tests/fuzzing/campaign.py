"""Runs inputs through a decoder and looks at what each of them did.

Every input must return or raise an error that the decoder documents, within its bounds; what is decoded must come
back from its own encoding.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random

from tests.fuzzing.decoder import Decoder
from tests.fuzzing.measure import (
    ArrowPeak,
    TooManyStepsError,
    counted_bytes,
    counted_steps,
    limited_memory,
)
from tests.fuzzing.mutate import mutated

_SAMPLE = 16
"""Of so many inputs one is measured, whatever it is like."""
_LARGE_BYTES = 2_048
"""Larger ones are measured for their steps: what is quadratic shows there."""
ROOM_BYTES = 2 << 30
"""For all that a decoder could ever take; who takes more has no bound at all."""


class Failed(Exception):
    """An input that did what no input may do."""

    def __init__(self, decoder: str, content: bytes, reason: str) -> None:
        super().__init__(decoder, content, reason)
        self.decoder, self.content, self.reason = decoder, content, reason

    def __str__(self) -> str:
        return f"{self.decoder}: {self.reason}; input of {len(self.content)} bytes {self.content[:100].hex()}"


@dataclass(slots=True)
class Report:
    """What the inputs of one decoder came to."""

    name: str
    inputs: int = 0
    decoded: int = 0
    """Of them: those that are valid."""
    seconds: float = 0.0
    peak_bytes: int = 0
    steps_share: float = 0.0
    """Of what is allowed, the most that any took."""
    memory_share: float = 0.0

    def __str__(self) -> str:
        speed = self.inputs / self.seconds if self.seconds else 0.0
        return (
            f"{self.name:24} {self.inputs:8} inputs {self.seconds:7.1f} s {speed:8.0f}/s {self.peak_bytes:11} bytes at most; "
            f"{self.decoded} decoded, {self.memory_share:.0%} of the memory and {self.steps_share:.0%} of the steps allowed"
        )


class Campaign:
    """Inputs for one decoder; ``before_each`` sees each of them before it is decoded."""

    def __init__(
        self, decoder: Decoder, before_each: Callable[[bytes], None] = lambda _: None
    ) -> None:
        self._decoder = decoder
        self._before_each = before_each
        self.report = Report(decoder.name)

    def run(self, corpus: Sequence[bytes], inputs: int, seed: int) -> None:
        """Fresh inputs, the same for the same seed.

        Raises:
            Failed: one did what none may do.
        """
        begin = time.monotonic()
        random = Random(f"{self._decoder.name} {seed}")
        with limited_memory(ROOM_BYTES):
            for number in range(inputs):
                content, has_claim = mutated(random, corpus)
                if self._decoder.seal is not None and random.random() < 0.8:
                    content = self._decoder.seal(content)
                is_sampled = number % _SAMPLE == 0
                is_large = len(content) > _LARGE_BYTES
                self.check(content, memory=is_sampled or has_claim, steps=is_sampled or is_large)
        self.report.seconds += time.monotonic() - begin

    def replay(self, corpus: Sequence[bytes]) -> None:
        """These, each of them measured; raises as :meth:`run` does."""
        with limited_memory(ROOM_BYTES):
            # What is imported or cached at a first call is no part of an input's cost.
            for content in corpus:
                self.check(content, memory=False, steps=False)
            for content in corpus:
                self.check(content, memory=True, steps=True)

    def check(self, content: bytes, *, memory: bool, steps: bool) -> None:
        """One input."""
        self.report.inputs += 1
        self._before_each(content)
        # First what ends a loop that never does.
        if steps:
            self._check_steps(content)
        arrow = ArrowPeak()
        if memory:
            self._check_memory(content)
        values = list(self._decode(content))
        self.report.decoded += len(values)
        if arrow_bytes := arrow.bytes():
            self._note_bytes(content, arrow_bytes)
        for value in values:
            self._check_encoding(content, value)

    def _decode(self, content: bytes) -> Iterator[object]:
        """The value; nothing where the decoder refuses the input."""
        try:
            yield self._decoder.decode(content)
        except self._decoder.errors:
            return
        except Exception as error:
            name = type(error).__name__
            raise Failed(self._decoder.name, content, f"raises {name}: {error}") from error

    def _check_steps(self, content: bytes) -> None:
        limit = self._decoder.steps.of(len(content))
        try:
            with counted_steps(limit) as count:
                for _ in self._decode(content):
                    pass
        except TooManyStepsError as error:
            raise Failed(self._decoder.name, content, f"takes {error}") from error
        self.report.steps_share = max(self.report.steps_share, count() / limit)

    def _check_memory(self, content: bytes) -> None:
        with counted_bytes() as count:
            for _ in self._decode(content):
                pass
        self._note_bytes(content, count())

    def _note_bytes(self, content: bytes, taken: int) -> None:
        limit = self._decoder.memory.of(len(content))
        if taken > limit:
            raise Failed(self._decoder.name, content, f"takes {taken} bytes, allowed are {limit}")
        self.report.peak_bytes = max(self.report.peak_bytes, taken)
        self.report.memory_share = max(self.report.memory_share, taken / limit)

    def _check_encoding(self, content: bytes, value: object) -> None:
        if self._decoder.encode is None:
            return
        try:
            encoded = self._decoder.encode(value)
            again = value if encoded is None else self._decoder.decode(encoded)
        except Exception as error:
            reason = f"decodes to what does not come back: {type(error).__name__}: {error}"
            raise Failed(self._decoder.name, content, reason) from error
        if again != value:
            reason = f"decodes to {value!r:.200}, which comes back as {again!r:.200}"
            raise Failed(self._decoder.name, content, reason)
