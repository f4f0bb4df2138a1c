"""How long a client waits for the metadata service."""

from __future__ import annotations

import pytest

from bookkeeper_metadata.errors import MetadataUnavailableError
from spark_bookkeeper import aio
from spark_bookkeeper.settings import ClientSettings

URI = "zk+hierarchical://zookeeper:2181/ledgers"


async def test_the_setting_counts_for_every_request_and_not_only_for_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits: dict[str, object] = {}

    async def connect(uri: str, *, security: object, **asked: int) -> None:
        limits.update(asked)
        raise MetadataUnavailableError(uri, "away")

    monkeypatch.setattr(aio, "connect", connect)
    client = aio.BookKeeper(URI, settings=ClientSettings(metadata_timeout_ms=60_000))

    with pytest.raises(MetadataUnavailableError):
        await client.connect()

    assert limits == {"connect_timeout_ms": 60_000, "session_timeout_ms": 60_000}
