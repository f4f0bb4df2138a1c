"""What a decoder under test is: a function of bytes, the errors it documents, and what it may take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

_KIB = 1024


@dataclass(frozen=True, slots=True)
class Bound:
    """So much in any case, and so much more for each byte of the input."""

    fixed: int
    per_byte: int

    def of(self, size_bytes: int) -> int:
        """For an input of this size."""
        return self.fixed + self.per_byte * size_bytes


MEMORY = Bound(64 * _KIB, 64)
"""Bytes allocated at any one moment."""
STEPS = Bound(2_000, 16)
"""Lines of Python that run, those of libraries included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoder:
    """One row of the table."""

    name: str
    decode: Callable[[bytes], object]
    """To the end: what is decoded lazily is consumed."""
    errors: tuple[type[Exception], ...]
    """What its documentation says that it raises, and nothing else."""
    seeds: Callable[[], Sequence[bytes]]
    """Valid encodings, made by the product's own encoders or seen elsewhere; the kept corpus is made of them."""
    covers: tuple[str, ...]
    """Full names of the product's functions that it runs."""
    encode: Callable[[Any], bytes | None] | None = None
    """Of a value that was decoded, bytes that decode to the same value; ``None``: there are none of this value."""
    seal: Callable[[bytes], bytes] | None = None
    """Makes checksums and lengths right again, so that a changed input gets behind them."""
    memory: Bound = MEMORY
    steps: Bound = STEPS
