"""What a client takes from the environment where nobody says it otherwise: paths and names, never secrets. Pure.

For clients without settings, all commands, and Spark's options that are not given: a driver's environment reaches its
executors as options.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bookie_server.client.settings import ConnectionSettings
from bookkeeper_metadata.foundation.settings_sources import read_boolean
from bookkeeper_metadata.foundation.tls.settings import TLS_VARIABLES
from bookkeeper_metadata.store.zookeeper_settings import ZOOKEEPER_VARIABLES
from spark_bookkeeper.settings import ClientSettings

CLIENT_VARIABLES: Mapping[str, str] = {**ZOOKEEPER_VARIABLES, **TLS_VARIABLES}
"""The variable of each setting of a client that has one."""


def given_client_settings(environment: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Names and values of a client's settings that the environment gives; an empty variable gives nothing."""
    return tuple(
        (name, value)
        for name, variable in CLIENT_VARIABLES.items()
        if (value := environment.get(variable, "").strip())
    )


def client_settings_from_environment(environment: Mapping[str, str]) -> ClientSettings:
    """Defaults but for what the environment gives.

    Raises:
        ValueError: what it gives makes no sense.
    """
    given = dict(given_client_settings(environment))
    inner: dict[str, Any] = {name: given[name] for name in TLS_VARIABLES if name in given}
    own: dict[str, Any] = {name: given[name] for name in ZOOKEEPER_VARIABLES if name in given}
    try:
        if "tls_only" in inner:
            inner["tls_only"] = read_boolean("tls_only", inner["tls_only"])
        return ClientSettings(connection=ConnectionSettings(**inner), **own)
    except ValueError as cause:
        names = ", ".join(CLIENT_VARIABLES[name] for name in given)
        raise ValueError(f"{cause} (from the environment: {names})") from cause
