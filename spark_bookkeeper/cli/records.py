"""Records in and out: a line each, or their bytes alone; what comes in may say its length."""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Iterator, Mapping
from typing import IO

import click

from spark_bookkeeper.admin.text import printable

length_prefixed_option = click.option(
    "--length-prefixed",
    is_flag=True,
    help="Records of a 4-byte big-endian length and that many bytes, instead of lines.",
)
"""``--length-prefixed``, as parameter of that name."""

raw_option = click.option(
    "--raw", is_flag=True, help="Print the bytes alone, with nothing between records."
)
"""``--raw``, as parameter of that name."""


def print_record(
    record: bytes | memoryview, *, name: str, place: Mapping[str, int], as_json: bool, raw: bool
) -> None:
    """A line of text; with ``as_json`` a document of where it stands, and of itself as ``name``."""
    if raw:
        sys.stdout.buffer.write(record)
        return
    text = printable(bytes(record))
    click.echo(json.dumps({**place, name: text}) if as_json else text)


def records_of_stdin(*, length_prefixed: bool) -> Iterator[bytes]:
    """The records of standard input as they come; lines without their line feed.

    Raises:
        ValueError: the input ends within a length-prefixed record.
    """
    stream = sys.stdin.buffer
    if length_prefixed:
        return _length_prefixed(stream)
    return (line.removesuffix(b"\n") for line in stream)


def _length_prefixed(stream: IO[bytes]) -> Iterator[bytes]:
    while prefix := stream.read(4):
        size = struct.unpack(">I", prefix)[0] if len(prefix) == 4 else -1
        record = stream.read(size) if size >= 0 else b""
        if len(record) != size:
            raise ValueError("standard input ends within a record")
        yield record
