"""From a metadata service URI to a live store."""

from __future__ import annotations

from bookkeeper_metadata.paths import parse_uri
from bookkeeper_metadata.store import zookeeper
from bookkeeper_metadata.store.zookeeper_access import load_access
from bookkeeper_metadata.store.zookeeper_settings import ZooKeeperSettings

_OPEN = ZooKeeperSettings()


async def connect(
    uri: str,
    *,
    security: ZooKeeperSettings = _OPEN,
    session_timeout_ms: int = zookeeper.SESSION_TIMEOUT_MS,
    connect_timeout_ms: int = zookeeper.CONNECT_TIMEOUT_MS,
) -> tuple[zookeeper.ZooKeeperStore, str]:
    """A connected store, which the caller closes, and the path of the cluster's root in it.

    Belongs to the running event loop. A layout named by the URI is for initializing a cluster; an
    existing one's own LAYOUT decides.

    Raises:
        ValueError: ``uri`` is no metadata service URI.
        TlsFilesError, CredentialsFileError: a file that ``security`` names cannot be used; nothing was connected.
        MetadataUnavailableError: no server of it answered in time.
        MetadataAccessError: one did, and does not authenticate this user.
    """
    parsed = parse_uri(uri)
    store = await zookeeper.ZooKeeperStore.connect(
        parsed.servers,
        access=load_access(security),
        session_timeout_ms=session_timeout_ms,
        connect_timeout_ms=connect_timeout_ms,
    )
    return store, parsed.root
