"""What a store holds and is asked to change, as values, and what refuses a change."""

from __future__ import annotations

from dataclasses import dataclass

VALUE_SIZE_BYTES_MAX = 1_000_000
"""Largest value of a node, and of all values of a ``multi`` together. ZooKeeper drops the connection
of a client that sends more than its ``jute.maxbuffer`` (1 MiB): that would look like an unknown outcome.
"""


class StoreConflict(Exception):
    """A mutation was refused, definitely, because the tree is not as its caller believed."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


class NodeExistsError(StoreConflict):
    """``create`` found a node of that path."""


class NoNodeError(StoreConflict):
    """The node to change, delete or create under does not exist."""


class BadVersionError(StoreConflict):
    """The node's version is not the expected one."""


class NotEmptyError(StoreConflict):
    """``delete`` found children."""


@dataclass(frozen=True, slots=True)
class Node:
    """A value as read, with the version to hand back to ``put`` or ``delete``."""

    value: bytes
    version: int
    created_ms: int
    """Wall clock of the store at creation, milliseconds since the epoch (ZooKeeper's ctime)."""
    is_own: bool = False
    """An ephemeral node made by this very session."""
    modified_ms: int = 0
    """The same clock at the last change of the value (ZooKeeper's mtime)."""


@dataclass(frozen=True, slots=True)
class Create:
    """Part of a ``multi``: create ``path``; its parent must exist."""

    path: str
    value: bytes


@dataclass(frozen=True, slots=True)
class Put:
    """Part of a ``multi``: replace the value if the version is ``expected_version``."""

    path: str
    value: bytes
    expected_version: int


@dataclass(frozen=True, slots=True)
class Delete:
    """Part of a ``multi``: delete; the version ``None`` stands for any."""

    path: str
    expected_version: int | None


@dataclass(frozen=True, slots=True)
class Check:
    """Part of a ``multi``: fail everything unless ``path`` exists at ``expected_version``.

    ``None`` checks existence only.
    """

    path: str
    expected_version: int | None


Operation = Create | Put | Delete | Check


def check_request(path: str, *values: bytes) -> None:
    """Refuse a request that no store can take; every implementation calls this before it sends.

    Raises:
        ValueError: the values are too large together, or ``path`` is not a path.
    """
    if not path.startswith("/") or "//" in path:
        raise ValueError(f"not an absolute path: {path!r}")
    size_bytes = sum(map(len, values))
    if size_bytes > VALUE_SIZE_BYTES_MAX:
        raise ValueError(
            "value too large for the metadata store; "
            f"path={path} size_bytes={size_bytes} size_bytes_max={VALUE_SIZE_BYTES_MAX}"
        )
