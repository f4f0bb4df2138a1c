"""What every metadata store must do; run on the one in memory and on a real ZooKeeper.

A test file subclasses :class:`MetadataStoreConformance` and provides the fixture ``world``.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from bookkeeper_metadata.foundation.errors import ClientClosedError
from bookkeeper_metadata.store.interface import MetadataStore
from bookkeeper_metadata.store.operations import (
    VALUE_SIZE_BYTES_MAX,
    BadVersionError,
    Check,
    Create,
    Delete,
    Node,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Put,
)
from tests.patience import seconds

DEADLINE_S = 20.0


class World(ABC):
    """One service, and a folder in it that belongs to one test."""

    root: str

    @abstractmethod
    async def connect(self) -> MetadataStore:
        """A new session of the service."""

    @abstractmethod
    async def expire(self, store: MetadataStore) -> None:
        """Make the service end the session of ``store`` without its doing."""

    @asynccontextmanager
    async def sessions(self, count: int) -> AsyncIterator[list[MetadataStore]]:
        """Sessions that are closed afterwards, over an empty folder ``root``."""
        stores = [await self.connect() for _ in range(count)]
        try:
            await stores[0].create(self.root, b"", make_parents=True)
            yield stores
        finally:
            for store in stores:
                await store.close()


async def eventually(holds: Callable[[], bool]) -> None:
    """Wait until ``holds``; a real service takes its time."""
    async with asyncio.timeout(seconds(DEADLINE_S)):
        while not holds():  # noqa: ASYNC110 - another process is waited for
            await asyncio.sleep(0.01)


async def eventually_counts(store: MetadataStore, path: str, count: int) -> None:
    """Wait until ``path`` has ``count`` children."""
    async with asyncio.timeout(seconds(DEADLINE_S)):
        while len(await store.children(path) or []) != count:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.01)


async def eventually_reads(
    read: Callable[[], Awaitable[Node | None]], accept: Callable[[Node | None], bool]
) -> None:
    """Read until what is read is accepted."""
    async with asyncio.timeout(seconds(DEADLINE_S)):
        while not accept(await read()):  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.02)


class MetadataStoreConformance:
    """The suite; every test runs on an event loop of its own."""

    def test_a_created_node_is_read_back_at_version_zero(self, world: World) -> None:
        async def main() -> None:
            async with world.sessions(2) as (store, other):
                await store.create(f"{world.root}/a", b"value")
                await other.sync(world.root)
                node = await other.get(f"{world.root}/a")
                assert node is not None
                assert (node.value, node.version, node.is_own) == (b"value", 0, False)
                assert await other.get(f"{world.root}/b") is None

        asyncio.run(main())

    def test_create_refuses_an_existing_node_and_a_missing_parent(self, world: World) -> None:
        async def main() -> None:
            async with world.sessions(1) as (store,):
                await store.create(f"{world.root}/a", b"")
                with pytest.raises(NodeExistsError) as exists:
                    await store.create(f"{world.root}/a", b"")
                assert exists.value.path == f"{world.root}/a"
                with pytest.raises(NoNodeError):
                    await store.create(f"{world.root}/b/c/d", b"")
                await store.create(f"{world.root}/b/c/d", b"deep", make_parents=True)
                with pytest.raises(NodeExistsError):
                    await store.create(f"{world.root}/b/c/d", b"deep", make_parents=True)
                parent = await store.get(f"{world.root}/b")
                assert parent is not None
                assert parent.value == b""

        asyncio.run(main())

    def test_put_succeeds_only_at_the_expected_version(self, world: World) -> None:
        async def main() -> None:
            async with world.sessions(1) as (store,):
                path = f"{world.root}/a"
                with pytest.raises(NoNodeError):
                    await store.put(path, b"0", 0)
                await store.create(path, b"0")
                assert await store.put(path, b"1", 0) == 1
                with pytest.raises(BadVersionError):
                    await store.put(path, b"x", 0)
                assert await store.put(path, b"2", 1) == 2
                node = await store.get(path)
                assert node is not None
                assert (node.value, node.version) == (b"2", 2)

        asyncio.run(main())

    def test_delete_wants_the_version_and_no_children(self, world: World) -> None:
        async def main() -> None:
            async with world.sessions(1) as (store,):
                path = f"{world.root}/a"
                await store.create(f"{path}/child", b"", make_parents=True)
                with pytest.raises(NotEmptyError):
                    await store.delete(path)
                with pytest.raises(BadVersionError):
                    await store.delete(f"{path}/child", 1)
                await store.delete(f"{path}/child", 0)
                await store.delete(path)
                with pytest.raises(NoNodeError):
                    await store.delete(path)

        asyncio.run(main())

    def test_children_are_sorted_names_and_none_without_the_node(self, world: World) -> None:
        async def main() -> None:
            async with world.sessions(1) as (store,):
                for name in ("b", "a", "c"):
                    await store.create(f"{world.root}/{name}", b"")
                assert await store.children(world.root) == ["a", "b", "c"]
                assert await store.children(f"{world.root}/a") == []
                assert await store.children(f"{world.root}/nothing") is None

        asyncio.run(main())

    def test_multi_applies_everything_in_order(self, world: World) -> None:
        async def main() -> None:
            async with world.sessions(1) as (store,):
                root = world.root
                await store.create(f"{root}/old", b"")
                await store.create(f"{root}/put", b"0")
                await store.multi(
                    [
                        Check(f"{root}/put", 0),
                        Check(f"{root}/old", None),
                        Create(f"{root}/new", b"n"),
                        Create(f"{root}/new/child", b"c"),
                        Put(f"{root}/put", b"1", 0),
                        Delete(f"{root}/old", None),
                    ]
                )
                assert await store.children(root) == ["new", "put"]
                assert await store.children(f"{root}/new") == ["child"]
                put = await store.get(f"{root}/put")
                assert put is not None
                assert (put.value, put.version) == (b"1", 1)
                await store.multi([])

        asyncio.run(main())

    @pytest.mark.parametrize(
        ("operation", "error"),
        [
            (lambda root: Create(f"{root}/full", b""), NodeExistsError),
            (lambda root: Create(f"{root}/none/child", b""), NoNodeError),
            (lambda root: Put(f"{root}/none", b"", 0), NoNodeError),
            (lambda root: Put(f"{root}/full", b"", 7), BadVersionError),
            (lambda root: Delete(f"{root}/full", None), NotEmptyError),
            (lambda root: Delete(f"{root}/full", 7), BadVersionError),
            (lambda root: Delete(f"{root}/none", None), NoNodeError),
            (lambda root: Check(f"{root}/full", 7), BadVersionError),
            (lambda root: Check(f"{root}/none", None), NoNodeError),
        ],
    )
    def test_a_refused_multi_changes_nothing_and_names_the_culprit(
        self,
        world: World,
        operation: Callable[[str], Create | Put | Delete | Check],
        error: type[Exception],
    ) -> None:
        async def main() -> None:
            async with world.sessions(1) as (store,):
                root = world.root
                await store.create(f"{root}/full/child", b"", make_parents=True)
                culprit = operation(root)
                with pytest.raises(error) as refused:
                    await store.multi(
                        [
                            Create(f"{root}/before", b""),
                            Delete(f"{root}/before", 0),
                            Put(f"{root}/full/child", b"changed", 0),
                            culprit,
                            Create(f"{root}/after", b""),
                        ]
                    )
                assert getattr(refused.value, "path", None) == culprit.path
                assert await store.children(root) == ["full"]
                child = await store.get(f"{root}/full/child")
                assert child is not None
                assert (child.value, child.version) == (b"", 0)

        asyncio.run(main())

    def test_sequence_numbers_count_what_was_ever_created_under_the_parent(
        self, world: World
    ) -> None:
        async def main() -> None:
            async with world.sessions(1) as (store,):
                root = world.root
                first = await store.sequence(f"{root}/ID-", b"one")
                assert first == f"{root}/ID-0000000000"
                await store.delete(first)
                await store.create(f"{root}/other", b"")
                assert await store.sequence(f"{root}/X-", b"") == f"{root}/X-0000000002"
                assert await store.sequence(f"{root}/", b"") == f"{root}/0000000003"
                with pytest.raises(NoNodeError):
                    await store.sequence(f"{root}/none/ID-", b"")

        asyncio.run(main())

    def test_ephemeral_nodes_end_with_their_session(self, world: World) -> None:
        async def main() -> None:
            async with world.sessions(2) as (store, other):
                await store.ephemeral(f"{world.root}/e", b"me")
                path = await store.sequence(f"{world.root}/s-", b"", ephemeral=True)
                mine = await store.get(f"{world.root}/e")
                theirs = await other.get(f"{world.root}/e")
                assert mine is not None
                assert mine.is_own
                assert theirs is not None
                assert not theirs.is_own
                assert theirs.value == b"me"
                await store.close()
                await eventually_reads(lambda: other.get(f"{world.root}/e"), lambda n: n is None)
                await eventually_reads(lambda: other.get(path), lambda n: n is None)

        asyncio.run(main())

    def test_an_ephemeral_node_of_a_live_session_is_refused_to_others(self, world: World) -> None:
        async def main() -> None:
            async with world.sessions(2) as (store, other):
                await store.ephemeral(f"{world.root}/e", b"first")
                with pytest.raises(NodeExistsError):
                    await other.ephemeral(f"{world.root}/e", b"second")
                with pytest.raises(NoNodeError):
                    await other.ephemeral(f"{world.root}/none/e", b"")

        asyncio.run(main())

    def test_a_leftover_of_a_session_that_ends_is_waited_for(self, world: World) -> None:
        async def main() -> None:
            async with world.sessions(2) as (store, other):
                await store.ephemeral(f"{world.root}/e", b"first")
                waiting = asyncio.create_task(other.ephemeral(f"{world.root}/e", b"second"))
                await asyncio.sleep(0)
                await store.close()
                await waiting
                node = await other.get(f"{world.root}/e")
                assert node is not None
                assert node.value == b"second"
                assert node.is_own

        asyncio.run(main())

    def test_a_registration_comes_back_after_session_loss_until_withdrawn(
        self, world: World
    ) -> None:
        async def main() -> None:
            async with world.sessions(2) as (store, other):
                path = f"{world.root}/e"
                registration = await store.ephemeral(path, b"me")
                before = await store.get(path)
                await other.watch(path, (seen := list[Node | None]()).append)
                await world.expire(store)
                await eventually(lambda: None in seen and seen[-1] is not None)
                await eventually_reads(
                    lambda: store.get(path), lambda n: n is not None and n.is_own
                )
                assert before is not None
                await registration.withdraw()
                assert await store.get(path) is None
                await registration.withdraw()
                await world.expire(store)
                await store.sync(path)
                await asyncio.sleep(0.05)
                assert await store.get(path) is None

        asyncio.run(main())

    def test_a_session_that_ends_while_a_node_is_registered_loses_no_registration(
        self, world: World
    ) -> None:
        async def main() -> None:
            async with world.sessions(1) as (store,):
                for turns in range(6):
                    path = f"{world.root}/e{turns}"
                    registering = asyncio.create_task(store.ephemeral(path, b"me"))
                    for _ in range(turns):
                        await asyncio.sleep(0)
                    await world.expire(store)
                    await registering
                    await eventually_reads(
                        lambda path=path: store.get(path),  # type: ignore[misc]
                        lambda n: n is not None and n.is_own,
                    )

        asyncio.run(main())

    def test_a_watch_reports_the_node_now_and_after_every_change(self, world: World) -> None:
        async def main() -> None:
            async with world.sessions(2) as (store, other):
                path = f"{world.root}/a"
                seen: list[Node | None] = []
                stop = await store.watch(path, seen.append)
                assert seen == [None]
                await other.create(path, b"0")
                await eventually(lambda: _value(seen) == b"0")
                await other.put(path, b"1", 0)
                await eventually(lambda: _value(seen) == b"1")
                await other.delete(path)
                await eventually(lambda: seen[-1] is None)
                await other.create(path, b"again")
                await eventually(lambda: _value(seen) == b"again")
                stop()
                await other.put(path, b"unseen", 0)
                await store.sync(path)
                await asyncio.sleep(0.05)
                assert _value(seen) == b"again"

        asyncio.run(main())

    def test_a_watch_outlives_its_session(self, world: World) -> None:
        async def main() -> None:
            async with world.sessions(2) as (store, other):
                path = f"{world.root}/a"
                await other.create(path, b"0")
                nodes: list[Node | None] = []
                names: list[list[str]] = []
                await store.watch(path, nodes.append)
                await store.watch_children(world.root, names.append)
                await world.expire(store)
                await other.put(path, b"1", 0)
                await other.create(f"{world.root}/b", b"")
                await eventually(lambda: _value(nodes) == b"1")
                await eventually(lambda: names[-1] == ["a", "b"])

        asyncio.run(main())

    def test_a_watcher_that_fails_is_called_again(self, world: World) -> None:
        async def main() -> None:
            asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
            async with world.sessions(2) as (store, other):
                seen: list[int] = []

                def changed(names: list[str]) -> None:
                    seen.append(len(names))
                    if len(names) == 1:
                        raise RuntimeError("a watcher's own defect")

                await store.watch_children(world.root, changed)
                await other.create(f"{world.root}/a", b"")
                await eventually(lambda: seen[-1] == 1)
                await other.create(f"{world.root}/b", b"")
                await eventually(lambda: seen[-1] == 2)

        asyncio.run(main())

    def test_watched_children_include_those_of_a_node_made_later(self, world: World) -> None:
        async def main() -> None:
            async with world.sessions(2) as (store, other):
                path = f"{world.root}/parent"
                seen: list[list[str]] = []
                stop = await store.watch_children(path, seen.append)
                assert seen == [[]]
                await other.create(f"{path}/a", b"", make_parents=True)
                await eventually(lambda: seen[-1] == ["a"])
                await other.create(f"{path}/b", b"")
                await eventually(lambda: seen[-1] == ["a", "b"])
                await other.delete(f"{path}/a")
                await eventually(lambda: seen[-1] == ["b"])
                stop()

        asyncio.run(main())

    def test_a_lock_has_one_holder_and_is_handed_on_in_order(self, world: World) -> None:
        async def main() -> None:
            async with world.sessions(3) as stores:
                path = f"{world.root}/locks/x"
                order: list[int] = []
                holders = 0

                async def hold(index: int) -> None:
                    nonlocal holders
                    release = await stores[index].lock(path)
                    holders += 1
                    assert holders == 1
                    order.append(index)
                    await asyncio.sleep(0.01)
                    holders -= 1
                    await release()

                tasks = []
                release_first = await stores[0].lock(path)
                for index in (2, 1, 0):
                    tasks.append(asyncio.create_task(hold(index)))
                    await eventually_counts(stores[0], path, len(tasks) + 1)
                assert order == []
                await release_first()
                await release_first()
                await asyncio.gather(*tasks)
                assert order == [2, 1, 0]
                assert await stores[0].children(path) == []

        asyncio.run(main())

    def test_a_lock_passes_on_when_its_holder_dies_and_a_cancelled_waiter_leaves_nothing(
        self, world: World
    ) -> None:
        async def main() -> None:
            async with world.sessions(3) as (holder, quitter, heir):
                path = f"{world.root}/lock"
                await holder.lock(path)
                quitting = asyncio.create_task(quitter.lock(path))
                inheriting = asyncio.create_task(heir.lock(path))
                await eventually_counts(heir, path, 3)
                quitting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await quitting
                assert len(await quitter.children(path) or []) == 2
                assert not inheriting.done()
                await holder.close()
                async with asyncio.timeout(seconds(DEADLINE_S)):
                    release = await inheriting
                await release()

        asyncio.run(main())

    def test_a_value_no_store_would_survive_is_refused_before_it_is_sent(
        self, world: World
    ) -> None:
        async def main() -> None:
            async with world.sessions(1) as (store,):
                path = f"{world.root}/a"
                await store.create(path, bytes(VALUE_SIZE_BYTES_MAX))
                too_large = bytes(VALUE_SIZE_BYTES_MAX + 1)
                with pytest.raises(ValueError, match="size_bytes=1000001"):
                    await store.put(path, too_large, 0)
                half = bytes(VALUE_SIZE_BYTES_MAX // 2 + 1)
                with pytest.raises(ValueError, match="too large"):
                    await store.multi(
                        [Create(f"{world.root}/b", half), Create(f"{world.root}/c", half)]
                    )
                with pytest.raises(ValueError, match="not an absolute path"):
                    await store.create("relative", b"")
                assert await store.children(world.root) == ["a"]

        asyncio.run(main())

    def test_a_closed_store_says_so(self, world: World) -> None:
        async def main() -> None:
            async with world.sessions(1):
                store = await world.connect()
                await store.watch(world.root, lambda node: None)
                await store.close()
                await store.close()
                with pytest.raises(ClientClosedError):
                    await store.get(world.root)
                with pytest.raises(ClientClosedError):
                    await store.create(f"{world.root}/a", b"")

        asyncio.run(main())


def _value(seen: list[Node | None]) -> bytes | None:
    last = seen[-1]
    return None if last is None else last.value
