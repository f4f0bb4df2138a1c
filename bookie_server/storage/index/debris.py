"""What an attempt to append to an index left behind its last sound group, and how it is taken away.

A full disk, or a crash, cuts an append short. The next one may be smaller, and what stands behind it would be
taken for damage; or it may be larger, and a crash within it leaves bytes of both. So the place is zeroed and
synced before it is used again: a crash meanwhile leaves what is torn, or nothing. It takes no room that
the file has not got already, and so it goes on where a disk is full.
"""

from __future__ import annotations

from bookie_server.storage.disk.errors import repeatable
from bookie_server.storage.disk.files import File

_PIECE = bytes(1024 * 1024)


def clear(file: File, path: str, first: int, until: int) -> None:
    """Zero what the file has from ``first`` to before ``until``; durable then.

    Raises:
        NoRoomError: the file system takes new room even for that; it may be tried again.
        OSError: nothing is known of the place.
    """
    until = min(until, file.size())
    if first >= until:
        return
    with repeatable(path):
        for at in range(first, until, len(_PIECE)):
            file.write_at(at, [_PIECE[: until - at]])
    file.sync()
