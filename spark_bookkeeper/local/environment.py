"""The environment that processes of ours run in, started from a clone or from an installation."""

from __future__ import annotations

import os
from pathlib import Path

from bookie_server.settings import bookie_settings_table

_ROOT = Path(__file__).resolve().parent.parent.parent
"""What all packages of this distribution lie in: the clone, or ``site-packages``."""


def child_environment() -> dict[str, str]:
    """Our own environment, with this very installation's packages found first.

    A bookie's settings are left out: what is meant for a bookie of its own, such as a port, must
    not reach every bookie of a local cluster.
    """
    settings = {setting.variable for setting in bookie_settings_table()}
    inherited = {name: value for name, value in os.environ.items() if name not in settings}
    path = os.pathsep.join(part for part in (str(_ROOT), inherited.get("PYTHONPATH")) if part)
    return {**inherited, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}
