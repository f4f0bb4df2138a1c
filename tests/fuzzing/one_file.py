"""A file system that has one file, for decoders that read files."""

from __future__ import annotations

import os
from functools import cache

from bookie_server.storage.disk.files import File, FileSystem
from bookie_server.storage.disk.real_files import RealFile


class OneFile(FileSystem):
    """A file system whose every name is one real file in memory: what is asked of the kernel, it answers."""

    def __init__(self) -> None:
        self._descriptor = os.memfd_create("fuzzed")
        os.set_inheritable(self._descriptor, False)

    def of(self, content: bytes) -> OneFile:
        """The same with this content."""
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, content, 0)
        return self

    def open(self, path: str, *, writable: bool = False) -> File:
        return RealFile(os.dup(self._descriptor))

    def names(self, directory: str) -> list[str]:
        return ["index"]

    def _none(self, *_: object, **__: object) -> None:
        raise AssertionError("reading is all")

    create = make_directory = sync_dir = rename = delete = free_space = lock = _none  # type: ignore[assignment]


one_file = cache(OneFile)
"""The one of this process."""
