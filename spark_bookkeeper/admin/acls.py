"""Whether a cluster's nodes have the ACL that this user would create them with, and giving it to those that have not.

For trees that are older than the user: an ACL is given at creation and never inherited. Walks everything, with one
folder's names in memory at a time; what comes and goes meanwhile is looked at or not.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, unique
from typing import Any, Protocol

from bookkeeper_metadata.errors import MetadataAccessError, MetadataUnavailableError
from bookkeeper_metadata.foundation.bounded import each
from bookkeeper_metadata.paths import Paths
from bookkeeper_metadata.store.acl import Acl, Difference, Identity, NodeAcl, difference
from bookkeeper_metadata.store.operations import BadVersionError, NoNodeError
from spark_bookkeeper.log.nodes.paths import LogPaths

_AT_ONCE = 64
"""Nodes asked for at a time."""
_ATTEMPTS_MAX = 5
"""To give a node its ACL, where another changes it or the reply is lost."""
_ATTEMPT_PAUSE_S = 0.2
EXAMPLES_MAX = 20
"""Nodes that are named; of the others only their number is told."""


@unique
class Finding(Enum):
    """What a node's ACL is, beside the one it should have."""

    AS_WANTED = "as wanted"
    WIDER = "wider"
    """Somebody may do more, and nobody less."""
    STRICTER = "stricter"
    """Somebody may do less, and nobody more: somebody wanted that, it may be."""
    DIFFERENT = "different"
    """Both, as of another user's nodes."""
    UNREADABLE = "unreadable"
    """This user may not see it, or not what is below it."""

    @property
    def is_open(self) -> bool:
        """Whether somebody may do more than should be, as far as anybody knows."""
        return self in (Finding.WIDER, Finding.DIFFERENT, Finding.UNREADABLE)


class AclStore(Protocol):
    """What is needed of the metadata store; of ZooKeeper's."""

    async def children(self, path: str) -> list[str] | None: ...

    async def acl(self, path: str) -> NodeAcl | None: ...

    async def set_acl(self, path: str, acl: Acl, expected_version: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Judged:
    """One node."""

    path: str
    finding: Finding
    detail: str = ""
    """What is granted too much (+) and too little (-), or why nothing is known."""
    is_mended: bool = False
    is_refused: bool = False
    """Whether it was to be mended and could not."""
    is_by_name: bool = False
    """Whether users could be told by their names only."""


@dataclass(slots=True)
class AclReport:
    """What the walk came to."""

    wanted: Acl
    nodes: int = 0
    mended: int = 0
    refused: int = 0
    """Nodes that were to be mended and could not."""
    by_name: int = 0
    """Nodes whose digests are hidden from this user, so that another password of a user looks the same."""
    left: Counter[Finding] = field(default_factory=Counter)
    """Nodes by what they are at the end."""
    examples: list[Judged] = field(default_factory=list)
    """Of those that are not as wanted at the end."""

    @property
    def open(self) -> int:
        """Nodes with which somebody may do more than should be."""
        return sum(count for finding, count in self.left.items() if finding.is_open)

    @property
    def astray(self) -> int:
        """Nodes that are not as wanted."""
        return self.nodes - self.left[Finding.AS_WANTED]

    def note(self, judged: Judged) -> None:
        """Count a node."""
        self.nodes += 1
        self.mended += judged.is_mended
        self.refused += judged.is_refused
        self.by_name += judged.is_by_name
        self.left[Finding.AS_WANTED if judged.is_mended else judged.finding] += 1
        is_example = not judged.is_mended and judged.finding is not Finding.AS_WANTED
        if is_example and len(self.examples) < EXAMPLES_MAX:
            self.examples.append(judged)

    def as_document(self) -> dict[str, Any]:
        """For machines."""
        return {
            "wanted": [str(grant) for grant in self.wanted],
            "nodes": self.nodes,
            "mended": self.mended,
            "refused": self.refused,
            "by_name": self.by_name,
            **{finding.name.lower(): self.left[finding] for finding in Finding},
            "examples": [
                {"path": each.path, "finding": each.finding.value, "detail": each.detail}
                for each in self.examples
            ],
        }


@dataclass(frozen=True, slots=True)
class Mending:
    """What is to be changed, beside looking."""

    is_exact: bool = False
    """Also ACLs that let somebody do less, who may do more then."""

    def covers(self, finding: Finding) -> bool:
        """Whether such a node gets the wanted ACL."""
        return finding is Finding.WIDER or (
            self.is_exact and finding in (Finding.STRICTER, Finding.DIFFERENT)
        )


async def go_through_acls(
    store: AclStore,
    root: str,
    wanted: Acl,
    *,
    own: Identity | None = None,
    mending: Mending | None = None,
    on_progress: Callable[[AclReport], None] = lambda _: None,
) -> AclReport:
    """Look at every node of the cluster at ``root``, and with ``mending`` change those that it covers.

    ``own`` is as whom the store is used. May be interrupted and run again: each node is changed by itself.

    Raises:
        MetadataUnavailableError: ZooKeeper does not answer; what was changed is changed.
    """
    report = AclReport(wanted)
    walk = _Walk(store, wanted, own, mending)
    for top in (root, Paths(root).of_bookies, LogPaths(root).root):
        async for judged in walk.through(top):
            report.note(judged)
            on_progress(report)
    return report


class _Walk:
    def __init__(
        self, store: AclStore, wanted: Acl, own: Identity | None, mending: Mending | None
    ) -> None:
        self._store = store
        self._wanted = wanted
        self._own = own
        self._mending = mending

    async def through(self, top: str) -> AsyncIterator[Judged]:
        judged, has_children = await self._look(top)
        if judged is not None:
            yield judged
        if has_children:
            async for below in self._below(top):
                yield below

    async def _below(self, folder: str) -> AsyncIterator[Judged]:
        try:
            names = await self._store.children(folder) or []
        except MetadataAccessError as error:
            yield Judged(f"{folder}/*", Finding.UNREADABLE, error.detail)
            return
        for at in range(0, len(names), _AT_ONCE):
            paths = [f"{folder}/{name}" for name in names[at : at + _AT_ONCE]]
            looked_at = await each(self._look, paths, concurrency_max=_AT_ONCE)
            for path, (judged, has_children) in zip(paths, looked_at, strict=True):
                if judged is not None:
                    yield judged
                if has_children:
                    async for below in self._below(path):
                        yield below

    async def _look(self, path: str) -> tuple[Judged | None, bool]:
        """The node - ``None``: it is gone - and whether there is something below it."""
        for attempt in range(_ATTEMPTS_MAX):
            try:
                found = await self._store.acl(path)
            except MetadataAccessError as error:
                return Judged(path, Finding.UNREADABLE, error.detail), False
            if found is None:
                return None, False
            between = difference(found.acl, self._wanted, self._own)
            finding, detail = judge(between)
            judged = Judged(path, finding, detail, is_by_name=between.is_by_name)
            if self._mending is None or not self._mending.covers(finding):
                return judged, found.has_children
            try:
                await self._store.set_acl(path, self._wanted, found.version)
            except NoNodeError:
                return None, False
            except MetadataAccessError as error:
                return _refused(judged, error.detail), found.has_children
            except BadVersionError:
                if attempt == _ATTEMPTS_MAX - 1:
                    # It must not keep the others from being looked at.
                    return _refused(judged, "somebody else keeps changing it"), found.has_children
                await asyncio.sleep(_ATTEMPT_PAUSE_S)
                continue
            except MetadataUnavailableError:
                # The reply is lost, it may be: giving it again is the same.
                if attempt == _ATTEMPTS_MAX - 1:
                    raise
                await asyncio.sleep(_ATTEMPT_PAUSE_S)
                continue
            return Judged(path, finding, detail, is_mended=True), found.has_children
        raise AssertionError("the last attempt returns or raises")


def _refused(judged: Judged, why: str) -> Judged:
    return replace(judged, detail=f"{judged.detail}; not changed: {why}", is_refused=True)


def judge(between: Difference) -> tuple[Finding, str]:
    """What a difference is called, and what it is."""
    detail = " ".join([*_signed("+", between.excess), *_signed("-", between.lacking)])
    if between.excess:
        return (Finding.DIFFERENT if between.lacking else Finding.WIDER), detail
    return (Finding.STRICTER if between.lacking else Finding.AS_WANTED), detail


def _signed(sign: str, acl: Sequence[object]) -> list[str]:
    return [f"{sign}{grant}" for grant in acl]
