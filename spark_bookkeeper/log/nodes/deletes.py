"""Deleting nodes of a log that other clients may be deleting at the same time."""

from __future__ import annotations

from bookkeeper_metadata.store.interface import MetadataStore
from bookkeeper_metadata.store.operations import NoNodeError, NotEmptyError


async def delete_node(store: MetadataStore, path: str) -> bool:
    """Delete a node whatever its version; returns whether it is gone (not when it has children).

    Raises:
        MetadataUnavailableError: it may be gone or not.
    """
    try:
        await store.delete(path)
    except NoNodeError:
        return True
    except NotEmptyError:
        return False
    return True
