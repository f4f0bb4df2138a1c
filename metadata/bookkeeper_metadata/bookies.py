"""Who is alive and how to reach them: bookies' registrations below ``available``.

A registration is an ephemeral node named by the bookie's id; its value lists endpoints, ours with
protocols ``grpc`` and ``socket``, a real Apache bookie's with ``bookie-rpc``. An empty value is a registration of
the old days, whose address is the id itself. A bookie whose value cannot be understood is alive
without an endpoint: absent would mean dead, and that starts re-replication.
Source: Apache ``ZKRegistrationManager``, ``ZKRegistrationClient``, ``BookieServiceInfoFormat``.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial

from google.protobuf.message import DecodeError

from bookkeeper_metadata.endpoints import (
    BOOKIE_ENDPOINT,
    BOOKIE_RPC,
    PORT_MAX,
    BookieServiceInfo,
    Endpoint,
    parse_address,
)
from bookkeeper_metadata.errors import MetadataCorruptError
from bookkeeper_metadata.paths import READONLY, Paths
from bookkeeper_metadata.proto.bookie_service_info_pb2 import BookieServiceInfoFormat
from bookkeeper_metadata.serde import text
from bookkeeper_metadata.store.interface import MetadataStore, Registration

_LOGGER = logging.getLogger(__name__)

_BOOKIE_ID = re.compile(r"[A-Za-z0-9:._-]+")


BOOKIE_ID_RULE = f"letters, digits and :._- only, and not {READONLY!r}"


def is_bookie_id(bookie_id: str) -> bool:
    """Whether the id can be the name of a node; ``BOOKIE_ID_RULE`` says what that takes."""
    return bool(_BOOKIE_ID.fullmatch(bookie_id)) and bookie_id not in (READONLY, ".", "..")


def check_bookie_id(bookie_id: str) -> str:
    """Return the id if it can be the name of a node.

    Raises:
        ValueError: it cannot.
    """
    if not is_bookie_id(bookie_id):
        raise ValueError(f"not a bookie id: {bookie_id!r}; {BOOKIE_ID_RULE}")
    return bookie_id


def encode_service_info(info: BookieServiceInfo) -> bytes:
    """The registration value Apache's clients understand."""
    message = BookieServiceInfoFormat(properties=dict(info.properties))
    for endpoint in info.endpoints:
        message.endpoints.add(**asdict(endpoint))
    return message.SerializeToString(deterministic=True)


def parse_service_info(value: bytes, bookie_id: str) -> BookieServiceInfo:
    """Parse a registration; an empty one, of an old bookie, has the id as its address.

    Raises:
        MetadataCorruptError: it is neither.
    """
    if not value:
        address = parse_address(bookie_id)
        if address is None:
            raise MetadataCorruptError(bookie_id, "no endpoints, and the id is no address")
        legacy = Endpoint(BOOKIE_ENDPOINT, *address, BOOKIE_RPC)
        return BookieServiceInfo((legacy,))
    message = BookieServiceInfoFormat()
    try:
        message.ParseFromString(value)
        if not message.IsInitialized():
            raise ValueError("required fields are missing")
        endpoints = tuple(
            Endpoint(
                text(e.id),
                text(e.host),
                e.port,
                text(e.protocol),
                tuple(map(text, e.auth)),
                tuple(map(text, e.extensions)),
            )
            for e in message.endpoints
        )
        if any(not 0 <= each.port <= PORT_MAX for each in endpoints):
            raise ValueError("a port that nobody can have")
        properties = {text(key): text(value) for key, value in message.properties.items()}
        return BookieServiceInfo(endpoints, properties)
    except (DecodeError, ValueError) as cause:
        raise MetadataCorruptError(bookie_id, f"not a registration: {cause}") from cause


class BookieRegistry:
    """The registrations of one cluster; owns nothing but the watches it hands out."""

    def __init__(self, store: MetadataStore, root: str) -> None:
        self._store = store
        self._paths = Paths(root)

    async def register(
        self, bookie_id: str, info: BookieServiceInfo, *, readonly: bool = False
    ) -> Registration:
        """Register a bookie as alive; the registration is renewed by itself after a session loss.

        Raises:
            ValueError: ``bookie_id`` cannot be a node's name.
            NodeExistsError: another live process has registered this id.
            NoNodeError: there is no cluster at this root.
        """
        path = self._paths.bookie(check_bookie_id(bookie_id), readonly=readonly)
        return await self._store.ephemeral(path, encode_service_info(info))

    async def is_registered(self, bookie_id: str) -> bool:
        """Whether a process is registered under this id, writable or not."""
        for is_readonly in (False, True):
            path = self._paths.bookie(bookie_id, readonly=is_readonly)
            if await self._store.get(path) is not None:
                return True
        return False

    async def writable(self) -> dict[str, BookieServiceInfo]:
        """Bookies that take new ledgers, by id, sorted."""
        return await self._read(self._paths.available)

    async def readonly(self) -> dict[str, BookieServiceInfo]:
        """Bookies that only serve what they have, by id, sorted."""
        return await self._read(self._paths.readonly)

    async def list_registered_ids(self) -> set[str]:
        """Ids of all of them, whatever they take.

        One that changes is registered at its new place before it goes from its old one. So the first folder is read
        again: a bookie that left the second one meanwhile is there by now.
        """
        return {
            name
            for folder in (self._paths.available, self._paths.readonly, self._paths.available)
            for name in await self._list_names(folder)
        }

    async def watch(
        self, changed: Callable[[frozenset[str], frozenset[str]], None]
    ) -> Callable[[], None]:
        """Call ``changed(writable ids, read-only ids)`` now and after every change.

        Returns the function that ends the watch.
        """
        seen: dict[bool, frozenset[str]] = {}

        def update(is_readonly: bool, names: list[str]) -> None:
            seen[is_readonly] = frozenset(names) - {READONLY}
            # Not before both were read: half the picture would call every read-only bookie dead.
            if len(seen) == 2:
                changed(seen[False], seen[True])

        with ExitStack() as stops:  # else a second watch that fails would leave the first behind
            for key, path in ((False, self._paths.available), (True, self._paths.readonly)):
                stops.callback(await self._store.watch_children(path, partial(update, key)))
            return stops.pop_all().close

    async def _read(self, folder: str) -> dict[str, BookieServiceInfo]:
        names = await self._list_names(folder)
        infos = await asyncio.gather(*(self._info(folder, name) for name in names))
        return {name: info for name, info in zip(names, infos, strict=True) if info is not None}

    async def _list_names(self, folder: str) -> list[str]:
        return [name for name in await self._store.children(folder) or [] if name != READONLY]

    async def _info(self, folder: str, bookie_id: str) -> BookieServiceInfo | None:
        node = await self._store.get(f"{folder}/{bookie_id}")
        # It went between the list and this question.
        if node is None:
            return None
        try:
            return parse_service_info(node.value, bookie_id)
        except MetadataCorruptError as corrupt:
            _LOGGER.warning("bookie is registered without a usable address: %s", corrupt)
            return BookieServiceInfo()
