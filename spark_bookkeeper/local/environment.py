"""The environment that processes of ours run in, started from a clone or from an installation."""

from __future__ import annotations

import os
from pathlib import Path

import bookkeeper_metadata
from bookie_server.settings import AUTORECOVERY_PREFIX, bookie_settings_table
from bookkeeper_metadata.environment import OLD_METADATA_URI_VARIABLE

_ROOTS = dict.fromkeys(
    str(Path(package).resolve().parent)
    for package in (Path(__file__).parents[1], bookkeeper_metadata.__path__[0])
)
"""The folders that hold the packages of this distribution: two in a clone, ``site-packages`` when it
is installed."""


def package_environment() -> dict[str, str]:
    """Our own environment, with this very installation's packages found first, and none of the current folder's: where
    anybody may write, as in ``/tmp``, anybody could put a package there."""
    path = os.pathsep.join(part for part in (*_ROOTS, os.environ.get("PYTHONPATH")) if part)
    own = {"PYTHONPATH": path, "PYTHONSAFEPATH": "1", "PYTHONUNBUFFERED": "1"}
    return {**os.environ, **own}


def child_environment() -> dict[str, str]:
    """The same without settings of a bookie and of auto-recovery: what is meant for a process of its own, such as
    a port, must not reach those of a local cluster.
    """
    settings = {setting.variable for setting in bookie_settings_table().settings}
    settings.add(OLD_METADATA_URI_VARIABLE)
    return {
        name: value
        for name, value in package_environment().items()
        if name not in settings and not name.startswith(AUTORECOVERY_PREFIX)
    }
