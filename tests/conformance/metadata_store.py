"""What every metadata store must do; run on the one in memory and on a real ZooKeeper.

A test file subclasses :class:`MetadataStoreConformance` and provides the fixture ``service``; the
sessions ``store``, ``other`` and ``third`` over its empty folder ``root`` are the conftest's.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial

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
from tests.doubles.waits import LIMIT_S, pass_turns, until, until_read


class Service(ABC):
    """One metadata service, and a folder in it that belongs to one test."""

    root: str

    @abstractmethod
    async def connect(self) -> MetadataStore:
        """A new session of the service."""

    @abstractmethod
    async def expire(self, store: MetadataStore) -> None:
        """Make the service end the session of ``store`` without its doing."""


class MetadataStoreConformance:
    async def test_a_created_node_is_read_back_at_version_zero(
        self, store: MetadataStore, other: MetadataStore, root: str
    ) -> None:
        await store.create(f"{root}/a", b"value")
        await other.sync(root)
        assert await content(other, f"{root}/a") == (b"value", 0)
        assert not await is_owner(other, f"{root}/a")
        assert await other.get(f"{root}/b") is None

    async def test_create_refuses_an_existing_node_and_a_missing_parent(
        self, store: MetadataStore, root: str
    ) -> None:
        await store.create(f"{root}/a", b"")
        with pytest.raises(NodeExistsError) as exists:
            await store.create(f"{root}/a", b"")
        assert exists.value.path == f"{root}/a"
        with pytest.raises(NoNodeError):
            await store.create(f"{root}/b/c/d", b"")
        await store.create(f"{root}/b/c/d", b"deep", make_parents=True)
        with pytest.raises(NodeExistsError):
            await store.create(f"{root}/b/c/d", b"deep", make_parents=True)
        assert await content(store, f"{root}/b") == (b"", 0)

    async def test_put_succeeds_only_at_the_expected_version(
        self, store: MetadataStore, root: str
    ) -> None:
        path = f"{root}/a"
        with pytest.raises(NoNodeError):
            await store.put(path, b"0", 0)
        await store.create(path, b"0")
        assert await store.put(path, b"1", 0) == 1
        with pytest.raises(BadVersionError):
            await store.put(path, b"x", 0)
        assert await store.put(path, b"2", 1) == 2
        assert await content(store, path) == (b"2", 2)

    async def test_delete_wants_the_version_and_no_children(
        self, store: MetadataStore, root: str
    ) -> None:
        path = f"{root}/a"
        await store.create(f"{path}/child", b"", make_parents=True)
        with pytest.raises(NotEmptyError):
            await store.delete(path)
        with pytest.raises(BadVersionError):
            await store.delete(f"{path}/child", 1)
        await store.delete(f"{path}/child", 0)
        await store.delete(path)
        with pytest.raises(NoNodeError):
            await store.delete(path)

    async def test_children_are_sorted_names_and_none_without_the_node(
        self, store: MetadataStore, root: str
    ) -> None:
        for name in ("b", "a", "c"):
            await store.create(f"{root}/{name}", b"")
        assert await store.children(root) == ["a", "b", "c"]
        assert await store.children(f"{root}/a") == []
        assert await store.children(f"{root}/nothing") is None

    async def test_multi_applies_everything_in_order(self, store: MetadataStore, root: str) -> None:
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
        assert await content(store, f"{root}/put") == (b"1", 1)
        await store.multi([])

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
    async def test_a_refused_multi_changes_nothing_and_names_the_culprit(
        self,
        store: MetadataStore,
        root: str,
        operation: Callable[[str], Create | Put | Delete | Check],
        error: type[Exception],
    ) -> None:
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
        assert await content(store, f"{root}/full/child") == (b"", 0)

    async def test_sequence_numbers_count_what_was_ever_created_under_the_parent(
        self, store: MetadataStore, root: str
    ) -> None:
        first = await store.sequence(f"{root}/ID-", b"one")
        assert first == f"{root}/ID-0000000000"
        await store.delete(first)
        await store.create(f"{root}/other", b"")
        assert await store.sequence(f"{root}/X-", b"") == f"{root}/X-0000000002"
        assert await store.sequence(f"{root}/", b"") == f"{root}/0000000003"
        with pytest.raises(NoNodeError):
            await store.sequence(f"{root}/none/ID-", b"")

    async def test_ephemeral_nodes_end_with_their_session(
        self, store: MetadataStore, other: MetadataStore, root: str
    ) -> None:
        await store.ephemeral(f"{root}/e", b"me")
        path = await store.sequence(f"{root}/s-", b"", ephemeral=True)
        assert await is_owner(store, f"{root}/e")
        assert await content(other, f"{root}/e") == (b"me", 0)
        assert not await is_owner(other, f"{root}/e")
        await store.close()
        await until_read(lambda: other.get(f"{root}/e"), lambda n: n is None)
        await until_read(lambda: other.get(path), lambda n: n is None)

    async def test_an_ephemeral_node_of_a_live_session_is_refused_to_others(
        self, store: MetadataStore, other: MetadataStore, root: str
    ) -> None:
        await store.ephemeral(f"{root}/e", b"first")
        with pytest.raises(NodeExistsError):
            await other.ephemeral(f"{root}/e", b"second")
        with pytest.raises(NoNodeError):
            await other.ephemeral(f"{root}/none/e", b"")

    async def test_a_leftover_of_a_session_that_ends_is_waited_for(
        self, store: MetadataStore, other: MetadataStore, root: str
    ) -> None:
        await store.ephemeral(f"{root}/e", b"first")
        waiting = asyncio.create_task(other.ephemeral(f"{root}/e", b"second"))
        await asyncio.sleep(0)
        await store.close()
        await waiting
        assert await content(other, f"{root}/e") == (b"second", 0)
        assert await is_owner(other, f"{root}/e")

    @pytest.mark.conformance("S10")
    async def test_a_registration_comes_back_after_session_loss_until_withdrawn(
        self, service: Service, store: MetadataStore, other: MetadataStore, root: str
    ) -> None:
        path = f"{root}/e"
        registration = await store.ephemeral(path, b"me")
        assert await is_owner(store, path)
        await other.watch(path, (seen := list[Node | None]()).append)
        await service.expire(store)
        await until(lambda: None in seen and seen[-1] is not None)
        await until_read(lambda: is_owner(store, path), bool)
        await registration.withdraw()
        assert await store.get(path) is None
        await registration.withdraw()
        await service.expire(store)
        await store.sync(path)
        await asyncio.sleep(0.05)
        assert await store.get(path) is None

    async def test_a_session_that_ends_while_a_node_is_registered_loses_no_registration(
        self, service: Service, store: MetadataStore, root: str
    ) -> None:
        for turn in range(6):
            path = f"{root}/e{turn}"
            registering = asyncio.create_task(store.ephemeral(path, b"me"))
            await pass_turns(turn)
            await service.expire(store)
            await registering
            await until_read(partial(is_owner, store, path), bool)

    async def test_a_watch_reports_the_node_now_and_after_every_change(
        self, store: MetadataStore, other: MetadataStore, root: str
    ) -> None:
        path = f"{root}/a"
        seen: list[Node | None] = []
        stop = await store.watch(path, seen.append)
        assert seen == [None]
        await other.create(path, b"0")
        await until(lambda: _value(seen) == b"0")
        await other.put(path, b"1", 0)
        await until(lambda: _value(seen) == b"1")
        await other.delete(path)
        await until(lambda: seen[-1] is None)
        await other.create(path, b"again")
        await until(lambda: _value(seen) == b"again")
        stop()
        await other.put(path, b"unseen", 0)
        await store.sync(path)
        await asyncio.sleep(0.05)
        assert _value(seen) == b"again"

    async def test_a_watch_outlives_its_session(
        self, service: Service, store: MetadataStore, other: MetadataStore, root: str
    ) -> None:
        path = f"{root}/a"
        await other.create(path, b"0")
        nodes: list[Node | None] = []
        names: list[list[str]] = []
        await store.watch(path, nodes.append)
        await store.watch_children(root, names.append)
        await service.expire(store)
        await other.put(path, b"1", 0)
        await other.create(f"{root}/b", b"")
        await until(lambda: _value(nodes) == b"1")
        await until(lambda: names[-1] == ["a", "b"])

    async def test_a_watcher_that_fails_is_called_again(
        self, store: MetadataStore, other: MetadataStore, root: str
    ) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        seen: list[int] = []

        def changed(names: list[str]) -> None:
            seen.append(len(names))
            if len(names) == 1:
                raise RuntimeError("a watcher's own defect")

        await store.watch_children(root, changed)
        await other.create(f"{root}/a", b"")
        await until(lambda: seen[-1] == 1)
        await other.create(f"{root}/b", b"")
        await until(lambda: seen[-1] == 2)

    async def test_watched_children_include_those_of_a_node_made_later(
        self, store: MetadataStore, other: MetadataStore, root: str
    ) -> None:
        path = f"{root}/parent"
        seen: list[list[str]] = []
        stop = await store.watch_children(path, seen.append)
        assert seen == [[]]
        await other.create(f"{path}/a", b"", make_parents=True)
        await until(lambda: seen[-1] == ["a"])
        await other.create(f"{path}/b", b"")
        await until(lambda: seen[-1] == ["a", "b"])
        await other.delete(f"{path}/a")
        await until(lambda: seen[-1] == ["b"])
        stop()

    async def test_a_lock_has_one_holder_and_is_handed_on_in_order(
        self, store: MetadataStore, other: MetadataStore, third: MetadataStore, root: str
    ) -> None:
        path = f"{root}/locks/x"
        waiting = (third, other, store)
        order: list[MetadataStore] = []
        holding = asyncio.Lock()

        async def hold(waiter: MetadataStore) -> None:
            release = await waiter.lock(path)
            assert not holding.locked()
            async with holding:
                order.append(waiter)
                await asyncio.sleep(0.01)
            await release()

        tasks = []
        release_first = await store.lock(path)
        for waiter in waiting:
            tasks.append(asyncio.create_task(hold(waiter)))
            await until_read(
                lambda: store.children(path), lambda names: len(names or []) == len(tasks) + 1
            )
        assert order == []
        await release_first()
        await release_first()
        await asyncio.gather(*tasks)
        assert order == list(waiting)
        assert await store.children(path) == []

    async def test_a_lock_passes_on_when_its_holder_dies_and_a_cancelled_waiter_leaves_nothing(
        self, store: MetadataStore, other: MetadataStore, third: MetadataStore, root: str
    ) -> None:
        path = f"{root}/lock"
        await store.lock(path)
        quitting = asyncio.create_task(other.lock(path))
        inheriting = asyncio.create_task(third.lock(path))
        await until_read(lambda: third.children(path), lambda names: len(names or []) == 3)
        quitting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await quitting
        assert len(await other.children(path) or []) == 2
        assert not inheriting.done()
        await store.close()
        release = await asyncio.wait_for(inheriting, LIMIT_S)
        await release()

    async def test_a_value_no_store_would_survive_is_refused_before_it_is_sent(
        self, store: MetadataStore, root: str
    ) -> None:
        path = f"{root}/a"
        await store.create(path, bytes(VALUE_SIZE_BYTES_MAX))
        with pytest.raises(ValueError, match="size_bytes=1000001"):
            await store.put(path, bytes(VALUE_SIZE_BYTES_MAX + 1), 0)
        half = bytes(VALUE_SIZE_BYTES_MAX // 2 + 1)
        with pytest.raises(ValueError, match="too large"):
            await store.multi([Create(f"{root}/b", half), Create(f"{root}/c", half)])
        with pytest.raises(ValueError, match="not an absolute path"):
            await store.create("relative", b"")
        assert await store.children(root) == ["a"]

    async def test_a_closed_store_says_so(self, store: MetadataStore, root: str) -> None:
        await store.watch(root, lambda node: None)
        await store.close()
        await store.close()
        with pytest.raises(ClientClosedError):
            await store.get(root)
        with pytest.raises(ClientClosedError):
            await store.create(f"{root}/a", b"")


async def content(store: MetadataStore, path: str) -> tuple[bytes, int] | None:
    """Value and version of the node."""
    node = await store.get(path)
    return None if node is None else (node.value, node.version)


async def is_owner(store: MetadataStore, path: str) -> bool:
    """Whether the node is there, and of this session."""
    node = await store.get(path)
    return node is not None and node.is_own


def _value(seen: list[Node | None]) -> bytes | None:
    return None if seen[-1] is None else seen[-1].value
