"""Standard input as records: a line each, or each behind its length."""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator
from typing import IO, Any

import click


def length_prefixed_option(command: Any) -> Any:
    """``--length-prefixed``, as parameter of that name."""
    return click.option(
        "--length-prefixed",
        is_flag=True,
        help="Records of a 4-byte big-endian length and that many bytes, instead of lines.",
    )(command)


def records_of_stdin(*, length_prefixed: bool) -> Iterator[bytes]:
    """The records of standard input as they come; lines without their line feed.

    Raises:
        ValueError: the input ends within a length-prefixed record.
    """
    stream = sys.stdin.buffer
    return _length_prefixed(stream) if length_prefixed else _lines(stream)


def _lines(stream: IO[bytes]) -> Iterator[bytes]:
    for line in stream:
        yield line.removesuffix(b"\n")


def _length_prefixed(stream: IO[bytes]) -> Iterator[bytes]:
    while prefix := stream.read(4):
        size = struct.unpack(">I", prefix)[0] if len(prefix) == 4 else -1
        record = stream.read(size) if size >= 0 else b""
        if len(record) != size:
            raise ValueError("standard input ends within a record")
        yield record
