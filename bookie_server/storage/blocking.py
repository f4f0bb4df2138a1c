"""A whole checkpoint and a whole burial, blocking: for start-up and shutdown, when no loop serves."""

from __future__ import annotations

import logging

from bookie_server.storage.checkpoint import Checkpoints
from bookie_server.storage.contents import Contents
from bookie_server.storage.disk.errors import NoRoomError

_LOGGER = logging.getLogger(__name__)


def write_checkpoint(contents: Contents, checkpoints: Checkpoints) -> None:
    """Make everything durable in entry logs and indexes.

    Raises:
        NoRoomError, StorageFailedError: as ``Checkpoints.write``.
    """
    plan = contents.begin_checkpoint()
    if plan is not None:
        contents.finish_checkpoint(checkpoints.write(plan))


def bury_deleted(contents: Contents, checkpoints: Checkpoints) -> None:
    """Delete the entry logs of deleted ledgers; without room for it, that is left to a later burial.

    Raises:
        StorageFailedError: as ``Checkpoints.bury``.
    """
    plan = contents.begin_burial()
    if plan is None:
        return
    try:
        contents.finish_burial(checkpoints.bury(plan))
    except NoRoomError as error:
        _LOGGER.warning("deleted ledgers not buried yet. detail=%s", error)
        contents.return_burial(plan)
