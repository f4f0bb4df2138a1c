"""Who may do what with a node, as ZooKeeper's ACLs say it: grants, how they are written, and what differs. Pure.

A node's ACL is its own: nothing is inherited. Creating and deleting a node is granted by its parent.
Source: ZooKeeper's ``ZooDefs.Perms``, ``DigestAuthenticationProvider.generateDigest``.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha1

_BITS = {"c": 4, "d": 8, "r": 1, "w": 2, "a": 16}
"""Create and delete children, read and write the node, administer its ACL."""
ALL = sum(_BITS.values())
WORLD = ("world", "anyone")
_BETWEEN = re.compile(r",(?=\s*[a-z0-9]+:)")
"""Names in certificates hold commas, too: one that begins another grant has a scheme behind it."""
_GRANT = re.compile(r"(?P<scheme>[a-z0-9]+):(?P<id>.+):(?P<letters>[cdrwa]+)")
_MASKED = ":x"
"""What ZooKeeper shows of a digest to whoever may not administer the node."""


@dataclass(frozen=True, slots=True, order=True)
class Grant:
    """What one identity may do; written ``scheme:id:cdrwa``."""

    scheme: str
    id: str
    permissions: int

    def __str__(self) -> str:
        letters = "".join(letter for letter, bit in _BITS.items() if self.permissions & bit)
        return f"{self.scheme}:{self.id}:{letters}"


Acl = tuple[Grant, ...]
"""One grant for each identity."""

OPEN: Acl = (Grant(*WORLD, ALL),)
"""Anybody may do anything: what ZooKeeper gives where nothing is said."""


@dataclass(frozen=True, slots=True)
class NodeAcl:
    """An ACL as read, with the version to hand back, and whether it is worth looking below the node."""

    acl: Acl
    version: int
    has_children: bool


@dataclass(frozen=True, slots=True)
class Difference:
    """Between the ACL that a node has and the one it should have."""

    excess: Acl
    """What it grants and should not."""
    lacking: Acl
    """What it should grant and does not."""


def parse_acl(text: str) -> Acl:
    """``scheme:id:cdrwa,...``; blanks around a grant do not count.

    Raises:
        ValueError: it is something else.
    """
    found: dict[tuple[str, str], int] = {}
    for part in _BETWEEN.split(text) if text.strip() else ():
        match = _GRANT.fullmatch(part.strip())
        if match is None:
            raise ValueError(
                f"must be grants such as digest:user:hash:cdrwa or world:anyone:r, comma-separated; {part.strip()!r} is none"
            )
        identity = match["scheme"], match["id"]
        if identity[0] == "world" and identity != WORLD:
            raise ValueError("knows one world only, world:anyone")
        if identity[0] == "digest" and identity[1].count(":") != 1:
            raise ValueError(
                f"names a digest's user and hash, digest:user:hash:cdrwa; {part.strip()!r} does not"
            )
        found[identity] = found.get(identity, 0) | _bits(match["letters"])
    return _as_acl(found)


def digest_id(credential: str) -> str:
    """The id, in the scheme ``digest``, of who authenticates with ``user:password``."""
    digest = b64encode(sha1(credential.encode(), usedforsecurity=False).digest())
    return f"{credential.partition(':')[0]}:{digest.decode()}"


def acl_for(credential: str, others: Acl) -> Acl:
    """Of everything that an identity creates: its own grant, all unless ``others`` names it, and theirs."""
    own = ("digest", digest_id(credential))
    granted = _by_identity(others)
    return others if own in granted else _as_acl({own: ALL, **granted})


def difference(found: Acl, wanted: Acl) -> Difference:
    """What anybody may do counts for everybody."""
    has, should = _by_identity(found), _by_identity(wanted)
    names = {_user(identity): identity for identity in should}
    # Masked, a digest says its user only: one of the same name passes for the same.
    has = {names.get(_user(each), each) if _is_masked(each) else each: has[each] for each in has}
    return Difference(excess=_beyond(has, should), lacking=_beyond(should, has))


def _beyond(more: Mapping[tuple[str, str], int], less: Mapping[tuple[str, str], int]) -> Acl:
    by_all = less.get(WORLD, 0)
    left = {each: bits & ~(less.get(each, 0) | by_all) for each, bits in more.items()}
    return _as_acl({each: bits for each, bits in left.items() if bits})


def _user(identity: tuple[str, str]) -> tuple[str, str]:
    return identity[0], identity[1].partition(":")[0]


def _is_masked(identity: tuple[str, str]) -> bool:
    return identity[0] == "digest" and identity[1].endswith(_MASKED)


def _by_identity(acl: Iterable[Grant]) -> dict[tuple[str, str], int]:
    return {(grant.scheme, grant.id): grant.permissions for grant in acl}


def _as_acl(granted: Mapping[tuple[str, str], int]) -> Acl:
    return tuple(sorted(Grant(*identity, bits) for identity, bits in granted.items()))


def _bits(letters: str) -> int:
    return sum(_BITS[letter] for letter in set(letters))
