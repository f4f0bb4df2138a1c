"""The inputs that are kept: ``corpora/<decoder>/*.hex``, an input a line.

``seeds.hex`` has valid encodings. It is written once and then only added to: what was stored by an earlier version
stays readable. A file ``found-<hash>.hex`` is an input that failed; it stays for good when its bug is mended.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path

CORPORA = Path(__file__).parent / "corpora"
_SEEDS = "seeds.hex"


def kept(decoder: str) -> list[bytes]:
    """All that is kept for a decoder, always in the same order."""
    return [item for path in sorted((CORPORA / decoder).glob("*.hex")) for item in items_of(path)]


def items_of(path: Path) -> list[bytes]:
    """The inputs of one file; an empty line is an empty one, and a line that begins with # none."""
    lines = path.read_text(encoding="ascii").splitlines()
    return [bytes.fromhex(line) for line in lines if not line.startswith("#")]


def add_seeds(decoder: str, seeds: Sequence[bytes]) -> int:
    """Keep these as well; how many are new."""
    path = CORPORA / decoder / _SEEDS
    known = items_of(path) if path.exists() else []
    new = [seed for seed in dict.fromkeys(seeds) if seed not in known]
    if new:
        path.parent.mkdir(parents=True, exist_ok=True)
        text = "".join(f"{item.hex()}\n" for item in (*known, *new))
        path.write_text(text, encoding="ascii")
    return len(new)


def keep_found(decoder: str, content: bytes, reason: str) -> Path:
    """Write an input that failed beside the corpus; the file says why."""
    digest = blake2b(content, digest_size=6).hexdigest()
    path = CORPORA / decoder / f"found-{digest}.hex"
    path.parent.mkdir(parents=True, exist_ok=True)
    comment = " ".join(reason.split()).encode("ascii", "replace").decode()[:300]
    path.write_text(f"# {comment}\n{content.hex()}\n", encoding="ascii")
    return path
