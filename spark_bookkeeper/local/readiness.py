"""Tells when bookies that were just started can be used: registered anew, and answering.

Asked of ZooKeeper and of the bookies themselves, never guessed from time passed or log lines. A
bookie registers after its service has begun, so a registration younger than the process and a port
that accepts are enough. (Not asked over gRPC: its coroutine flavour supports one event loop per
process, and that one belongs to the client.)

The questions run on an event loop of their own in a thread of their own, so that a local cluster
also starts inside a notebook, whose thread has a running loop already.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from bookkeeper_metadata.cluster import initialize
from bookkeeper_metadata.errors import ClusterExistsError, MetadataUnavailableError
from bookkeeper_metadata.paths import Paths
from bookkeeper_metadata.store.connect import connect
from bookkeeper_metadata.store.interface import MetadataStore
from spark_bookkeeper.local.ports import is_listening

POLL_INTERVAL_S = 0.05

Result = TypeVar("Result")


def run_in_thread(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine to its end on a fresh loop in a fresh thread; its error is raised here."""
    # Not as a context manager: an interrupted caller must not wait for the thread.
    executor = ThreadPoolExecutor(1, "local-cluster")
    outcome = executor.submit(asyncio.run, coroutine)
    executor.shutdown(wait=False)
    return outcome.result()


async def initialize_once(uri: str) -> None:
    """Format the cluster's metadata unless that has been done."""
    store, root = await connect(uri)
    async with store:
        with contextlib.suppress(ClusterExistsError):
            await initialize(store, root)


async def wait_until_ready(
    uri: str, spawned_ms: Mapping[str, int], check: Callable[[], None], timeout_s: float
) -> dict[str, str]:
    """Wait for bookies, given by id with the wall clock in ms at which their process was spawned.

    ``check`` is called between polls and may raise to end the wait. Returns who is not ready after
    ``timeout_s``, with what is missing; empty when all are.
    """
    deadline = time.monotonic() + timeout_s
    store, root = await connect(uri)
    async with store:
        missing = dict.fromkeys(spawned_ms, "not asked yet")
        while missing:
            check()
            for bookie_id in list(missing):
                reason = await _missing(store, Paths(root), bookie_id, spawned_ms[bookie_id])
                if reason is None:
                    del missing[bookie_id]
                else:
                    missing[bookie_id] = reason
            if time.monotonic() > deadline:
                break
            if missing:
                await asyncio.sleep(POLL_INTERVAL_S)
        return missing


async def _missing(
    store: MetadataStore, paths: Paths, bookie_id: str, spawned_ms: int
) -> str | None:
    """What this bookie lacks to be ready, ``None`` when nothing."""
    try:
        node = await store.get(paths.bookie(bookie_id))
        if node is None:
            node = await store.get(paths.bookie(bookie_id, readonly=True))
    except MetadataUnavailableError as error:
        return str(error)
    # ZooKeeper runs on this machine, so both times are of one clock.
    if node is None or node.created_ms < spawned_ms:
        return "not registered in ZooKeeper"
    port = int(bookie_id.rpartition(":")[2])
    return None if is_listening(port) else "registered but not answering"
