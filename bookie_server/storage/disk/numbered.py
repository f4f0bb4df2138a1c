"""Files that are called by their number: sixteen hex digits, so that names sort as numbers do."""

from __future__ import annotations

import re

from bookie_server.storage.disk.files import FileSystem

_DIGITS = re.compile("[0-9a-f]{16}")


def numbered_name(number: int, suffix: str) -> str:
    """What the file of this number is called."""
    return f"{number:016x}{suffix}"


def numbers_in(files: FileSystem, directory: str, suffix: str) -> list[int]:
    """The numbers of such files in a directory, ascending; what is called otherwise is somebody else's."""
    names = (name.removesuffix(suffix) for name in files.names(directory) if name.endswith(suffix))
    return sorted(int(name, 16) for name in names if _DIGITS.fullmatch(name))
