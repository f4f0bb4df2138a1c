"""The environment that processes of ours run in, started from a clone or from an installation."""

from __future__ import annotations

import os
from pathlib import Path

import bookkeeper_metadata
from bookie_server.settings import bookie_settings_table
from bookkeeper_metadata.environment import OLD_METADATA_URI_VARIABLE

_ROOTS = dict.fromkeys(
    str(Path(package).resolve().parent)
    for package in (Path(__file__).parents[1], bookkeeper_metadata.__path__[0])
)
"""The folders that hold the packages of this distribution: two in a clone, ``site-packages`` when it
is installed."""


def child_environment() -> dict[str, str]:
    """Our own environment, with this very installation's packages found first.

    A bookie's settings are left out: what is meant for a bookie of its own, such as a port, must
    not reach every bookie of a local cluster.
    """
    settings = {setting.variable for setting in bookie_settings_table()}
    settings.add(OLD_METADATA_URI_VARIABLE)
    inherited = {name: value for name, value in os.environ.items() if name not in settings}
    path = os.pathsep.join(part for part in (*_ROOTS, inherited.get("PYTHONPATH")) if part)
    return {**inherited, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}
