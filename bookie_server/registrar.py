"""Registrar: keeps a bookie registered as writable or as read-only, whichever it is now.

A bookie that changes is registered anew before its old registration goes: in between it is listed
twice, never not at all, for a bookie that is not listed counts as dead. Every step may be repeated:
what a lost reply or the end of a session leaves half done is finished as soon as the metadata service
answers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from bookkeeper_metadata.bookies import BookieRegistry
from bookkeeper_metadata.endpoints import GRPC, BookieServiceInfo
from bookkeeper_metadata.errors import MetadataAccessError, MetadataUnavailableError
from bookkeeper_metadata.foundation.errors import BookKeeperError
from bookkeeper_metadata.foundation.tasks import end_tasks
from bookkeeper_metadata.store.interface import Registration
from bookkeeper_metadata.store.operations import StoreConflict

_LOGGER = logging.getLogger(__name__)
_TRY_AGAIN_S = 1.0


class RpcPortNeededError(BookKeeperError):
    """Java clients choose every bookie of a cluster, and cannot reach one without an rpc_port; nothing was changed."""

    name = "BK_RPC_PORT_NEEDED"
    definite = True

    bookies: str
    message = (
        "Apache's bookies are registered in this cluster, and their clients would choose this one and not "
        "reach it; give it an rpc_port. bookies={bookies}"
    )


async def require_no_java(registry: BookieRegistry) -> None:
    """For a bookie that Java clients cannot reach: they choose whatever is registered, find that out by an add, and have
    fewer copies than the metadata says of all entries up to then.

    Raises:
        RpcPortNeededError: a bookie is registered that nobody but Apache's clients may be meant for.
    """
    registered = await registry.writable() | await registry.readonly()
    apaches = sorted(each for each, info in registered.items() if not info.endpoint(GRPC))
    if apaches:
        raise RpcPortNeededError(" ".join(apaches))


class Registrar:
    """Of one bookie: ``start`` registers it, ``stop`` ends that."""

    def __init__(
        self,
        registry: BookieRegistry,
        bookie_id: str,
        info: BookieServiceInfo,
        on_registered: Callable[[], None] = lambda: None,
    ) -> None:
        """``on_registered`` is called by a start that has registered it."""
        self._on_registered = on_registered
        self._registry = registry
        self._bookie_id = bookie_id
        self._info = info
        self._wanted = False
        self._is_readonly = False
        self._has_changed = asyncio.Event()
        self._registrations: list[Registration] = []
        """The present one, and behind it those that are to go."""
        self.keeper: asyncio.Task[None] | None = None
        """The task that keeps the registration; it ends by ``stop`` or by a defect."""

    def __str__(self) -> str:
        ports = ",".join(str(endpoint.port) for endpoint in self._info.endpoints)
        return f"bookie_id={self._bookie_id} port={ports} readonly={self._is_readonly}"

    @property
    def is_registered(self) -> bool:
        """Whether it has registered, and was not stopped since."""
        return bool(self._registrations)

    def set_readonly(self, is_readonly: bool) -> None:
        """Say what the bookie is to be registered as from now on, or at its start."""
        if is_readonly is not self._wanted:
            self._wanted = is_readonly
            self._has_changed.set()

    async def start(self) -> None:
        """Register.

        Raises:
            NodeExistsError: another live process is registered under this id.
        """
        await self._register()
        self.keeper = asyncio.create_task(self._keep(), name="registrar")
        self._on_registered()

    async def stop(self) -> None:
        """Be registered no more."""
        if self.keeper is not None:
            await end_tasks([self.keeper])
        while self._registrations:
            await self._registrations[-1].withdraw()
            self._registrations.pop()

    async def _register(self) -> None:
        wanted = self._wanted
        registration = await self._registry.register(self._bookie_id, self._info, readonly=wanted)
        self._registrations.insert(0, registration)
        self._is_readonly = wanted

    async def _keep(self) -> None:
        while True:
            changed = asyncio.create_task(self._has_changed.wait(), name="readonly-changed")
            try:
                kept = self._registrations[0].keeper
                await asyncio.wait((changed, kept), return_when=asyncio.FIRST_COMPLETED)
            finally:
                await end_tasks([changed])
            if kept.done():
                # Not created again after the next session loss: the bookie would look dead.
                kept.result()
                return
            self._has_changed.clear()
            try:
                await self._move()
            except (MetadataUnavailableError, MetadataAccessError, StoreConflict) as failure:
                _LOGGER.warning("registration not changed yet: %r", failure)
                self._has_changed.set()
                await asyncio.sleep(_TRY_AGAIN_S)

    async def _move(self) -> None:
        if self._is_readonly is not self._wanted:
            # Nothing may be left to withdraw at the place that is taken now.
            await self._withdraw_old()
            await self._register()
            _LOGGER.info("registered anew. readonly=%s", self._is_readonly)
        await self._withdraw_old()

    async def _withdraw_old(self) -> None:
        while len(self._registrations) > 1:
            await self._registrations[-1].withdraw()
            self._registrations.pop()
