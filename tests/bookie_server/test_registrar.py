"""A bookie's registration follows what it takes, whatever the metadata service loses in between."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from itertools import count

import pytest

from bookie_server import registrar as module
from bookie_server.registrar import Registrar
from bookkeeper_metadata.bookies import BookieRegistry
from bookkeeper_metadata.endpoints import BookieServiceInfo
from bookkeeper_metadata.paths import Paths
from bookkeeper_metadata.store.memory import Fault, MemoryStore
from tests.doubles.waits import pass_turns, until

ROOT = "/ledgers"
PATHS = Paths(ROOT)


@pytest.fixture
async def store(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[MemoryStore]:
    monkeypatch.setattr(module, "_TRY_AGAIN_S", 0.001)
    async with MemoryStore() as made:
        await made.create(PATHS.readonly, b"", make_parents=True)
        yield made


def registered(store: MemoryStore) -> tuple[bool, bool]:
    """Whether as writable, and whether as read-only."""
    paths = PATHS.bookie("b:1"), PATHS.bookie("b:1", readonly=True)
    writable, readonly = (store.tree.node(path, 0) is not None for path in paths)
    return writable, readonly


async def started(store: MemoryStore) -> Registrar:
    registrar = Registrar(BookieRegistry(store, ROOT), "b:1", BookieServiceInfo())
    await registrar.start()
    return registrar


@pytest.mark.conformance("S10")
async def test_it_moves_both_ways_and_is_never_missing(store: MemoryStore) -> None:
    registrar = await started(store)
    seen = set[tuple[bool, bool]]()
    store.tree.listen(PATHS.available, lambda: seen.add(registered(store)))
    store.tree.listen(PATHS.readonly, lambda: seen.add(registered(store)))

    for _ in range(3):
        registrar.set_readonly(True)
        await until(lambda: registered(store) == (False, True))
        registrar.set_readonly(False)
        await until(lambda: registered(store) == (True, False))

    assert (False, False) not in seen
    await registrar.stop()
    assert registered(store) == (False, False)


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("operation", ["ephemeral", "get", "delete"])
async def test_a_lost_message_is_made_up_for(
    store: MemoryStore, operation: str, fault: Fault
) -> None:
    registrar = await started(store)
    faults: Iterator[Fault | None] = iter([fault, None, fault])

    def lose(asked: str, _: str) -> Fault | None:
        return next(faults, None) if asked == operation else None

    store.fault = lose
    registrar.set_readonly(True)
    await until(lambda: registered(store) == (False, True))
    registrar.set_readonly(False)
    await until(lambda: registered(store) == (True, False))

    store.fault = None
    await registrar.stop()
    assert registered(store) == (False, False)


async def test_a_session_that_ends_in_between_leaves_one_registration(store: MemoryStore) -> None:
    registrar = await started(store)

    def expire(operation: str, _: str) -> None:
        if operation == "delete":
            store.fault = None
            store.expire()

    store.fault = expire
    registrar.set_readonly(True)

    await until(lambda: registered(store) == (False, True))
    registrar.set_readonly(False)
    await until(lambda: registered(store) == (True, False))
    await registrar.stop()


@pytest.mark.parametrize("fault", [None, *Fault])
@pytest.mark.parametrize("is_full", [True, False])
async def test_wherever_in_a_move_the_session_ends_one_registration_is_left(
    store: MemoryStore, is_full: bool, fault: Fault | None
) -> None:
    """At each message of the move in turn, which is lost with the session or gets through."""
    wanted = (not is_full, is_full)
    for nth in count():
        registrar = await started(store)
        if not is_full:
            registrar.set_readonly(True)
            await until(lambda: registered(store) == (False, True))
        left = nth

        def expire(operation: str, path: str) -> Fault | None:
            nonlocal left
            left -= 1
            if left == -1:
                store.expire()
                return fault
            return None

        store.fault = expire
        registrar.set_readonly(is_full)
        await until(lambda: registered(store) == wanted)
        # Nothing that was under way brings the other one back.
        await pass_turns(20)
        await until(lambda: registered(store) == wanted)
        store.fault = None

        # It still follows, and its end leaves nothing.
        registrar.set_readonly(not is_full)
        await until(lambda: registered(store) == (is_full, not is_full))
        await registrar.stop()
        assert registered(store) == (False, False)
        if left >= 0:
            assert nth >= 2, "a move makes one node and deletes another"
            return


async def test_a_change_back_before_the_first_was_made_ends_where_it_should(
    store: MemoryStore,
) -> None:
    registrar = await started(store)

    registrar.set_readonly(True)
    registrar.set_readonly(False)
    registrar.set_readonly(True)

    await until(lambda: registered(store) == (False, True))
    await registrar.stop()


async def test_a_bookie_that_starts_on_a_full_disk_is_registered_as_read_only_at_once(
    store: MemoryStore,
) -> None:
    registrar = Registrar(BookieRegistry(store, ROOT), "b:1", BookieServiceInfo())
    registrar.set_readonly(True)

    await registrar.start()

    assert registered(store) == (False, True)
    await registrar.stop()
