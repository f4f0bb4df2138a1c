"""The environment variable that names a cluster, for clients, bookies and the command line alike."""

from __future__ import annotations

import logging
from collections.abc import Mapping

METADATA_URI_VARIABLE = "BOOKKEEPER_METADATA_URI"
OLD_METADATA_URI_VARIABLE = "BOOKKEEPER_METADATA_SERVICE_URI"
"""What bookies read up to version 0.1."""

_LOGGER = logging.getLogger(__name__)


def read_metadata_uri(environment: Mapping[str, str]) -> str | None:
    """The metadata service URI that the environment names; ``None``: it names none.

    The old variable is read where the new one is not set. A warning names the new one; it comes as
    well where both are set and differ, since the old one then has no effect.
    """
    uri = environment.get(METADATA_URI_VARIABLE, "").strip()
    old = environment.get(OLD_METADATA_URI_VARIABLE, "").strip()
    if old and old != uri:
        _LOGGER.warning(
            "%s is now called %s; the old variable is %s",
            OLD_METADATA_URI_VARIABLE,
            METADATA_URI_VARIABLE,
            "ignored, for the new one is set too" if uri else "still read; rename it",
        )
    return uri or old or None
