"""Deleting nodes of a log that other clients may be deleting at the same time."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from bookkeeper_metadata.foundation.bounded import each
from bookkeeper_metadata.store.interface import MetadataStore
from bookkeeper_metadata.store.operations import NoNodeError, NotEmptyError

DELETES_MAX = 32
"""Nodes of one log deleted at a time."""


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


async def delete_nodes(store: MetadataStore, paths: Collection[str]) -> list[bool]:
    """As :func:`delete_node` for each, some at a time."""
    return await each(partial(delete_node, store), paths, concurrency_max=DELETES_MAX)
