"""Recorded exchanges with Apache BookKeeper 4.18.0 (tests/golden/apache), read as values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bookie_server.wire.rpc.frames import LENGTH_SIZE, parse_length

DIRECTORY = Path(__file__).parents[3] / "golden" / "apache"
CLOSED, SILENCE = "<closed>", "<silence>"


@dataclass(frozen=True)
class Exchange:
    """A request as sent, and what came: a response's bytes, or that none came."""

    transcript: str
    title: str
    connection: int
    sent: bytes
    received: bytes | str

    @property
    def request(self) -> bytes:
        """The frame without its length; empty for one whose length is refused."""
        return self.sent[LENGTH_SIZE:]

    @property
    def sent_back(self) -> bytes:
        """The response with its length."""
        assert isinstance(self.received, bytes)
        return self.received

    @property
    def response(self) -> bytes:
        """The response without its length."""
        assert parse_length(self.sent_back) == len(self.sent_back) - LENGTH_SIZE
        return self.sent_back[LENGTH_SIZE:]

    def __str__(self) -> str:
        return f"{self.transcript}: {self.title}"


def exchanges(pattern: str) -> list[Exchange]:
    """Of the transcripts whose path matches, in order."""
    paths = sorted(DIRECTORY.glob(pattern))
    assert paths
    return [exchange for path in paths for exchange in _read(path)]


def _read(path: Path) -> Iterator[Exchange]:
    name = str(path.relative_to(DIRECTORY))
    title, connection, sent = "", 1, b""
    for line in path.read_text().splitlines():
        mark, _, rest = line.partition(" ")
        match mark:
            case "==":
                title = rest
            case "@":
                connection = int(rest)
            case ">":
                sent = bytes.fromhex(rest)
            case "<":
                received = rest if rest in (CLOSED, SILENCE) else bytes.fromhex(rest)
                yield Exchange(name, title, connection, sent, received)
            case _:
                assert not mark or mark == "#"
