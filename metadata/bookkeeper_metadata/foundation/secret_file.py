"""A secret in a file: its first line, so that it stands neither in a list of processes nor in a plan of Spark's.

Everybody who can log in reads a file whose mode lets them. That is said once, and no reason to stop: containers' secrets are mounted so.
"""

from __future__ import annotations

import errno
import logging
from functools import cache
from pathlib import Path
from stat import S_IROTH, S_ISREG

_LOGGER = logging.getLogger(__name__)
_SIZE_MAX = 4_096


def read_secret(path: str) -> bytes:
    """The first line without its end.

    Raises:
        OSError: the file cannot be read here, is no file (a pipe would be waited for, and can be read only once), or its
            first line is empty or very long.
    """
    try:
        if not S_ISREG(Path(path).stat().st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", path)
        warn_of_readers(path)
        with open(path, "rb") as file:
            line = file.readline(_SIZE_MAX + 1)
    except ValueError as error:
        raise OSError(errno.EINVAL, str(error), path) from error
    found = line.rstrip(b"\r\n")
    if not found or len(line) > _SIZE_MAX:
        raise OSError(errno.EINVAL, "its first line is empty or too long", path)
    return found


@cache
def warn_of_readers(path: str) -> None:
    """Say, the first time this process reads a secret's file, that every user of the machine may.

    Raises:
        OSError: there is no such file.
        ValueError: nor can be.
    """
    if Path(path).stat().st_mode & S_IROTH:
        _LOGGER.warning("every user may read a file with a secret; chmod 600 it. path=%s", path)
