"""Whom a call is meant for: the bookie's id and its cluster's, in the metadata of every gRPC call.

An address is no identity. A bookie may be found at an address that another one had - of this cluster
under a new id, or of another cluster under the same id - and what it says of ledgers it never stored
would count as the old one's word: "no such entry" is evidence. So clients name the bookie they mean, and
a bookie takes no call that is meant for another; to its sender the bookie it meant is away.

A call that names nobody is taken: clients of version 0.1 say nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import quote

BOOKIE_KEY = "bookkeeper-bookie-id"
CLUSTER_KEY = "bookkeeper-instance-id"
"""Keys of a call's metadata; the values are percent-encoded, as gRPC takes printable ASCII only."""


def encode_addressee(bookie_id: str, cluster_id: str) -> tuple[tuple[str, str], ...]:
    """The metadata of a call that is meant for one bookie; an empty ``cluster_id`` names no cluster."""
    named = ((BOOKIE_KEY, bookie_id), (CLUSTER_KEY, cluster_id))
    return tuple((key, quote(value)) for key, value in named if value)


def is_meant_for(
    metadata: Iterable[tuple[str, str | bytes]], bookie_id: str, cluster_id: str
) -> bool:
    """Whether a call with this metadata is for this bookie, or names nobody."""
    own = {BOOKIE_KEY: quote(bookie_id), CLUSTER_KEY: quote(cluster_id)}
    return all(own.get(key, value) == value for key, value in metadata)
