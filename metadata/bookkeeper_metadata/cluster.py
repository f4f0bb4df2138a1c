"""A cluster's creation and identity: the nodes every bookie and client expects below the ledgers root.

LAYOUT and INSTANCEID come last and together: a root with a LAYOUT is a whole cluster, and one
without is none, whatever else an interrupted ``initialize`` left there. Nothing is ever overwritten.
Source: Apache ``LedgerLayout``, ``ZKRegistrationManager.initNewCluster``.
"""

from __future__ import annotations

import contextlib
import uuid
from random import Random, SystemRandom

from bookkeeper_metadata.errors import (
    ClusterExistsError,
    ClusterNotInitializedError,
    MetadataCorruptError,
    MetadataUnavailableError,
)
from bookkeeper_metadata.paths import LedgerLayout, Paths
from bookkeeper_metadata.store.interface import MetadataStore
from bookkeeper_metadata.store.operations import Create, NodeExistsError
from bookkeeper_metadata.update import read_back

_PACKAGE = "org.apache.bookkeeper.meta."
_FACTORIES = {
    LedgerLayout.HIERARCHICAL: f"{_PACKAGE}HierarchicalLedgerManagerFactory:1",
    LedgerLayout.LONG_HIERARCHICAL: f"{_PACKAGE}LongHierarchicalLedgerManagerFactory:1",
}
_UNDERREPLICATION_LAYOUT = b'type: "BASIC"\nversion: 1\n'


async def initialize(
    store: MetadataStore,
    root: str,
    *,
    layout: LedgerLayout = LedgerLayout.HIERARCHICAL,
    random: Random | None = None,
) -> str:
    """Make ``root`` a new, empty cluster; returns its instance id (a random UUID).

    Safe to repeat after an interruption. ``random`` defaults to the system's.

    Raises:
        ClusterExistsError: there is one already; nothing was changed.
        MetadataUnavailableError: unknown whether it exists now.
    """
    random = SystemRandom() if random is None else random
    paths = Paths(root)
    if await store.get(paths.layout) is not None:
        raise ClusterExistsError(root)
    # Not one multi: what an interrupted attempt left is met again here, and counts for nothing as
    # long as there is no LAYOUT.
    for path, value in (
        (paths.readonly, b""),
        (paths.cookies, b""),
        (paths.idgen, b""),
        (paths.underreplicated_ledgers, b""),
        (paths.underreplication_locks, b""),
        (paths.underreplication_layout, _UNDERREPLICATION_LAYOUT),
    ):
        with contextlib.suppress(NodeExistsError):
            await store.create(path, value, make_parents=True)
    instance_id = str(uuid.UUID(int=random.getrandbits(128), version=4))
    identity = Create(paths.instance_id, instance_id.encode())
    try:
        # Apache's LAYOUT: the version of its format, then the ledger manager's class and version.
        await store.multi([Create(paths.layout, f"2\n{_FACTORIES[layout]}".encode()), identity])
    except NodeExistsError as cause:
        raise ClusterExistsError(root) from cause
    except MetadataUnavailableError as lost:
        node = await read_back(store, paths.instance_id, random, lost)
        if node is None:
            raise
        # The instance id is random, so it tells whose multi was applied.
        if node.value != identity.value:
            raise ClusterExistsError(root) from lost
    return instance_id


async def read_layout(store: MetadataStore, root: str) -> LedgerLayout:
    """Read how this cluster turns ledger ids into paths.

    Raises:
        ClusterNotInitializedError: no LAYOUT, hence no cluster.
        MetadataCorruptError: the LAYOUT names a ledger manager this project does not know.
    """
    path = Paths(root).layout
    node = await store.get(path)
    if node is None:
        # The cluster may have been initialized a moment ago over a server that this one lags behind.
        await store.sync(root)
        node = await store.get(path)
    if node is None:
        raise ClusterNotInitializedError(root)
    lines = node.value.decode(errors="replace").split("\n")
    for layout, factory in _FACTORIES.items():
        if lines[:2] == ["2", factory]:
            return layout
    raise MetadataCorruptError(path, f"unsupported ledger layout {' '.join(lines)!r}")


async def instance_id(store: MetadataStore, root: str) -> str | None:
    """Read the cluster's UUID; ``None`` for a cluster that was made without one.

    Raises:
        ClusterNotInitializedError: no LAYOUT, hence no cluster.
    """
    paths = Paths(root)
    node = await store.get(paths.instance_id)
    if node is not None:
        return node.value.decode(errors="replace")
    await read_layout(store, root)
    return None
