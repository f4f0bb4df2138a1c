"""Roles: what whoever has a certificate may do at a bookie. Pure.

Few things differ at a bookie, and on purpose: recovery and re-replication are the same requests there, and deletions come
from the metadata service, which has its own say about who may do what (docs/zookeeper-security.md).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum, unique

from bookie_server.wire.messages import Method


@unique
class Role(Enum):
    """Of a common name."""

    CLIENT = "client"
    """Reads, writes, fences and recovers ledgers whose password it knows."""
    BOOKIE = "bookie"
    """Asks besides what a bookie holds, to mend it and to drop what is too much."""
    ADMIN = "admin"
    """Whatever the others may."""


_OF_ALL = frozenset(Role)
_ALLOWED = {Method.LIST_ENTRIES: frozenset({Role.BOOKIE, Role.ADMIN})}
"""By request: who may make it; what is not named, all may who have a role."""


@dataclass(frozen=True, slots=True)
class Roles:
    """Which common names have which roles; where none has one, whoever is vouched for may do all."""

    client_names: Collection[str] = ()
    """Empty: every name is a client's."""
    bookie_names: Collection[str] = ()
    admin_names: Collection[str] = ()

    def of(self, common_name: str) -> frozenset[Role]:
        """The roles of one."""
        if not (self.client_names or self.bookie_names or self.admin_names):
            return _OF_ALL
        found = set()
        # Who talks in clear, or has no plain name, has none.
        if common_name and (common_name in self.client_names or not self.client_names):
            found.add(Role.CLIENT)
        if common_name in self.bookie_names:
            found.add(Role.BOOKIE)
        if common_name in self.admin_names:
            found.add(Role.ADMIN)
        return frozenset(found)

    def allow(self, common_name: str, method: Method | None = None) -> bool:
        """Whether it may make such a request; ``None``: whether it may connect, add and read."""
        return not self.of(common_name).isdisjoint(
            _OF_ALL if method is None else allowed_to(method)
        )


def allowed_to(method: Method) -> frozenset[Role]:
    """Who may make such a request."""
    return _ALLOWED.get(method, _OF_ALL)
