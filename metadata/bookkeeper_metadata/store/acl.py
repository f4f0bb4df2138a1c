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
READ = _BITS["r"]
WORLD = ("world", "anyone")
_BETWEEN = re.compile(r",(?=\s*[a-z0-9]+:)")
"""Names in certificates hold commas, too: one that begins another grant has a scheme behind it."""
_GRANT = re.compile(r"(?P<scheme>[a-z0-9]+):(?P<id>.+):(?P<letters>[cdrwa]+)")
_SCHEMES = ("digest", "ip", "sasl", "world", "x509")
"""ZooKeeper's own, but for ``auth``, which is whoever asks."""
_DIGEST = re.compile(r"[^:]+:[A-Za-z0-9+/]{27}=")
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
Identity = tuple[str, str]
"""Scheme and id."""

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
    is_by_name: bool = False
    """Whether digests were hidden, so that users could be told by their names only."""


def parse_acl(text: str) -> Acl:
    """``scheme:id:cdrwa,...``; blanks around a grant do not count.

    Raises:
        ValueError: it is something else; it is not shown, for a password may have been taken for a digest.
    """
    found: dict[Identity, int] = {}
    for number, part in enumerate(_BETWEEN.split(text) if text.strip() else (), 1):
        match = _grant_in(part)
        if match is None:
            raise ValueError(
                "must be grants such as digest:user:hash:cdrwa or world:anyone:r, comma-separated, of the schemes "
                f"{', '.join(_SCHEMES)}; number {number} is none"
            )
        identity = match["scheme"], match["id"]
        if identity[0] == "world" and identity != WORLD:
            raise ValueError("knows one world only, world:anyone")
        if identity[0] == "digest" and not _DIGEST.fullmatch(identity[1]):
            raise ValueError(
                "names a digest's user and hash, digest:user:hash:cdrwa, where the hash is the SHA-1 of user:password "
                f"in base64; number {number} does not"
            )
        found[identity] = found.get(identity, 0) | _bits(match["letters"])
    return _as_acl(found)


def has_administrator(acl: Acl) -> bool:
    """Whether somebody may do everything: else nobody could ever change such nodes again."""
    return any(grant.permissions == ALL for grant in acl)


def shown_acl(text: str) -> str:
    """Such a text without what may be a password: hashes, and whatever is no grant."""
    return ",".join(map(_shown, _BETWEEN.split(text)))


def _shown(part: str) -> str:
    match = _grant_in(part)
    if match is None:
        return "..."
    if match["scheme"] != "digest":
        return match[0]
    user = match["id"].partition(":")[0] + ":" if _DIGEST.fullmatch(match["id"]) else ""
    return f"digest:{user}...:{match['letters']}"


def _grant_in(part: str) -> re.Match[str] | None:
    match = _GRANT.fullmatch(part.strip())
    return match if match is not None and match["scheme"] in _SCHEMES else None


def digest_id(credential: str) -> str:
    """The id, in the scheme ``digest``, of who authenticates with ``user:password``."""
    digest = b64encode(sha1(credential.encode(), usedforsecurity=False).digest())
    return f"{credential.partition(':')[0]}:{digest.decode()}"


def acl_for(credential: str, others: Acl) -> Acl:
    """Of everything that an identity creates: its own grant, all unless ``others`` names it, and theirs."""
    own = ("digest", digest_id(credential))
    granted = _by_identity(others)
    return others if own in granted else _as_acl({own: ALL, **granted})


def difference(found: Acl, wanted: Acl, own: Identity | None = None) -> Difference:
    """What anybody may do counts for everybody. ``own``: as whom ``found`` was read."""
    should = _by_identity(wanted)
    names = {_user(identity): identity for identity in should}
    has: dict[Identity, int] = {}
    for grant in found:
        identity = grant.scheme, grant.id
        if _is_masked(identity):
            # It says its user only: one of the same name passes for the same, once. But whoever may administer a
            # node is shown its digests, so one of our own name that may is somebody else.
            known = names.get(_user(identity))
            is_impostor = known == own and grant.permissions & _BITS["a"]
            if known is not None and not is_impostor and known not in has:
                identity = known
        has[identity] = has.get(identity, 0) | grant.permissions
    return Difference(
        excess=_beyond(has, should),
        lacking=_beyond(should, has),
        is_by_name=any(_is_masked((grant.scheme, grant.id)) for grant in found),
    )


def _beyond(more: Mapping[Identity, int], less: Mapping[Identity, int]) -> Acl:
    by_all = less.get(WORLD, 0)
    left = {each: bits & ~(less.get(each, 0) | by_all) for each, bits in more.items()}
    return _as_acl({each: bits for each, bits in left.items() if bits})


def _user(identity: Identity) -> Identity:
    return identity[0], identity[1].partition(":")[0]


def _is_masked(identity: Identity) -> bool:
    return identity[0] == "digest" and identity[1].endswith(_MASKED)


def _by_identity(acl: Iterable[Grant]) -> dict[Identity, int]:
    found: dict[Identity, int] = {}
    for grant in acl:
        identity = grant.scheme, grant.id
        found[identity] = found.get(identity, 0) | grant.permissions
    return found


def _as_acl(granted: Mapping[Identity, int]) -> Acl:
    return tuple(sorted(Grant(*identity, bits) for identity, bits in granted.items()))


def _bits(letters: str) -> int:
    return sum(_BITS[letter] for letter in set(letters))
