"""Folders of a store: nodes without a value, which are made for what lies in them and go with it."""

from __future__ import annotations

import contextlib

from bookkeeper_metadata.errors import MetadataAccessError, MetadataUnavailableError
from bookkeeper_metadata.store.interface import MetadataStore
from bookkeeper_metadata.store.operations import NoNodeError, NotEmptyError


async def delete_empty_folders(store: MetadataStore, folder: str, root: str) -> None:
    """Delete a folder below ``root`` and those around it that became empty, as far as that works: an
    empty folder does no harm."""
    # Folders of another user's may not be ours to delete.
    harmless = NotEmptyError, NoNodeError, MetadataUnavailableError, MetadataAccessError
    with contextlib.suppress(*harmless):
        while folder != root:
            await store.delete(folder)
            folder = folder.rpartition("/")[0]
