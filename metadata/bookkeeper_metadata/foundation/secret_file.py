"""A secret in a file: its first line, so that it stands neither in a list of processes nor in a plan of Spark's."""

from __future__ import annotations


def read_secret(path: str) -> bytes:
    """The first line without its end.

    Raises:
        OSError: the file cannot be read here.
    """
    with open(path, "rb") as file:
        return file.readline().rstrip(b"\r\n")
