"""Users of a real ZooKeeper: whose nodes are whose, what a refusal is, and that a session's end changes neither."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.protocol.serialization import Auth

from bookkeeper_metadata.errors import MetadataAccessError, MetadataUnavailableError
from bookkeeper_metadata.store import zookeeper_session
from bookkeeper_metadata.store.acl import OPEN, Acl, Grant, digest_id, parse_acl
from bookkeeper_metadata.store.interface import MetadataStore
from bookkeeper_metadata.store.operations import (
    BadVersionError,
    Check,
    Create,
    Delete,
    Node,
    NoNodeError,
    Put,
)
from bookkeeper_metadata.store.zookeeper import ZooKeeperStore
from bookkeeper_metadata.store.zookeeper_access import load_access
from bookkeeper_metadata.store.zookeeper_settings import ZooKeeperSettings
from spark_bookkeeper.local.zookeeper import ZooKeeperProcess
from tests.doubles.waits import until, until_read
from tests.metadata.secure_zookeeper import PASSWORD, ConfiguredZooKeeper, as_user, user_file
from tests.patience import seconds

pytestmark = [pytest.mark.zookeeper, pytest.mark.slow]

SESSION_TIMEOUT_MS = 4_000
OWN: Acl = (Grant("digest", digest_id(f"me:{PASSWORD}"), 31),)
READ = parse_acl("world:anyone:r")
NOBODY = ZooKeeperSettings()
_folders = itertools.count()


@asynccontextmanager
async def session(
    process: ZooKeeperProcess, settings: ZooKeeperSettings
) -> AsyncIterator[ZooKeeperStore]:
    store = await ZooKeeperStore.connect(
        [process.service], access=load_access(settings), session_timeout_ms=SESSION_TIMEOUT_MS
    )
    async with store:
        yield store


@pytest.fixture
def folder() -> str:
    return f"/users-{next(_folders)}"


@pytest.fixture
def me(tmp_path: Path) -> ZooKeeperSettings:
    return as_user(tmp_path, "me")


@pytest.fixture
async def mine(
    zookeeper: ZooKeeperProcess, me: ZooKeeperSettings, folder: str
) -> AsyncIterator[ZooKeeperStore]:
    """A session of a user's, whose folder is there with a node in it."""
    async with session(zookeeper, me) as store:
        await store.create(f"{folder}/a", b"mine", make_parents=True)
        yield store


async def acl_of(store: ZooKeeperStore, path: str) -> Acl:
    found = await store.acl(path)
    assert found is not None
    return found.acl


async def expire(process: ZooKeeperProcess, store: ZooKeeperStore) -> None:
    """A second connection takes over the session and ends it."""
    old, client_id = store.session_id, store._client.client_id

    def end() -> None:
        client = KazooClient(process.service, client_id=client_id, timeout=2.0)
        client.start()
        client.stop()
        client.close()

    async with asyncio.timeout(seconds(20)):
        while store.session_id == old:
            await asyncio.to_thread(end)
            with suppress(TimeoutError):
                await until(lambda: store.session_id != old, limit_s=2.0)


async def test_whatever_a_user_creates_is_that_users_alone(
    mine: ZooKeeperStore, folder: str
) -> None:
    await mine.multi([Create(f"{folder}/multi", b""), Create(f"{folder}/multi/below", b"")])
    numbered = await mine.sequence(f"{folder}/n-", b"", ephemeral=True)
    await mine.ephemeral(f"{folder}/e", b"")
    unlock = await mine.lock(f"{folder}/lock")
    [waiter] = await mine.children(f"{folder}/lock") or []

    names = ("", "/a", "/multi", "/multi/below", "/e", "/lock", f"/lock/{waiter}")
    for path in (*(f"{folder}{name}" for name in names), numbered):
        assert await acl_of(mine, path) == OWN, path
    await unlock()


async def test_without_a_user_nodes_are_anybodys_as_ever(
    zookeeper: ZooKeeperProcess, folder: str
) -> None:
    async with session(zookeeper, NOBODY) as store:
        await store.create(folder, b"")
        assert await acl_of(store, folder) == OPEN


async def test_others_are_refused_by_name_and_nothing_counts_as_absent(
    zookeeper: ZooKeeperProcess, mine: ZooKeeperStore, folder: str, tmp_path: Path
) -> None:
    a = f"{folder}/a"
    requests: list[tuple[str, Callable[[MetadataStore], Awaitable[Any]]]] = [
        (a, lambda store: store.get(a)),
        (folder, lambda store: store.children(folder)),
        (a, lambda store: store.put(a, b"theirs", 0)),
        (a, lambda store: store.delete(a)),
        (f"{folder}/b", lambda store: store.create(f"{folder}/b", b"")),
        (f"{folder}/c/d", lambda store: store.create(f"{folder}/c/d", b"", make_parents=True)),
        (f"{folder}/n-", lambda store: store.sequence(f"{folder}/n-", b"")),
        (f"{folder}/e", lambda store: store.ephemeral(f"{folder}/e", b"")),
        (a, lambda store: store.watch(a, lambda _: None)),
        (folder, lambda store: store.watch_children(folder, lambda _: None)),
        (f"{folder}/l", lambda store: store.lock(f"{folder}/l")),
        (a, lambda store: store.multi([Check(folder, None), Put(a, b"theirs", 0)])),
        (a, lambda store: store.multi([Delete(a, None), Create(f"{folder}/x", b"")])),
    ]

    for settings, user in ((as_user(tmp_path, "other"), "other"), (NOBODY, "none")):
        async with session(zookeeper, settings) as store:
            for path, request in requests:
                with pytest.raises(MetadataAccessError) as refused:
                    await request(store)
                said = str(refused.value)
                # Of a node with missing parents it is the first of them that is asked for.
                assert path.startswith(refused.value.path), said
                assert f"user={user} service={zookeeper.service}" in said
                assert PASSWORD not in said

    found = await mine.get(a)
    assert found is not None
    assert (found.value, await mine.children(folder)) == (b"mine", ["a"])


async def test_the_password_is_logged_nowhere(
    zookeeper: ZooKeeperProcess, me: ZooKeeperSettings, caplog: pytest.LogCaptureFixture
) -> None:
    """kazoo logs what it sends."""
    caplog.set_level(logging.DEBUG)
    # A demo that ran in this process before has told ours to be quiet.
    caplog.set_level(logging.DEBUG, "bookkeeper_metadata")

    async with session(zookeeper, me) as store:
        await expire(zookeeper, store)
        assert await store.children("/") is not None

    assert "metadata connected" in caplog.text
    assert PASSWORD not in caplog.text


async def test_a_wrong_password_is_another_user(
    zookeeper: ZooKeeperProcess, mine: ZooKeeperStore, folder: str, tmp_path: Path
) -> None:
    """ZooKeeper lets anybody be anybody: what a password opens is nodes."""
    (tmp_path / "wrong").mkdir()
    wrong = user_file(tmp_path / "wrong", "me", "not it")

    async with session(zookeeper, ZooKeeperSettings(zookeeper_auth_path=wrong)) as store:
        with pytest.raises(MetadataAccessError, match=r"a wrong password shows so, too.*user=me"):
            await store.get(f"{folder}/a")


async def test_others_may_do_what_the_acl_says(
    zookeeper: ZooKeeperProcess, folder: str, tmp_path: Path
) -> None:
    spark = f"digest:{digest_id(f'spark:{PASSWORD}')}:cdrw"
    shared = as_user(tmp_path, "me", zookeeper_acl=f"{spark},world:anyone:r")
    async with (
        session(zookeeper, shared) as mine,
        session(zookeeper, as_user(tmp_path, "spark")) as theirs,
        session(zookeeper, NOBODY) as nobodys,
    ):
        await mine.create(f"{folder}/a", b"", make_parents=True)
        assert await acl_of(mine, folder) == tuple(sorted(parse_acl(spark) + OWN + READ))

        await theirs.put(f"{folder}/a", b"theirs", 0)
        await theirs.create(f"{folder}/b", b"")
        await theirs.delete(f"{folder}/a")
        found = await theirs.acl(folder)
        assert found is not None
        with pytest.raises(MetadataAccessError):
            await theirs.set_acl(folder, OPEN, found.version)

        assert await nobodys.children(folder) == ["b"]
        with pytest.raises(MetadataAccessError):
            await nobodys.delete(f"{folder}/b")


async def test_a_user_may_leave_itself_less_than_all(
    zookeeper: ZooKeeperProcess, folder: str, tmp_path: Path
) -> None:
    """Who may not delete what is in the folders that it made."""
    admin = f"digest:{digest_id(f'admin:{PASSWORD}')}:cdrwa"
    own = f"digest:{digest_id(f'me:{PASSWORD}')}:crw"
    async with session(zookeeper, as_user(tmp_path, "me", zookeeper_acl=f"{own},{admin}")) as store:
        await store.create(f"{folder}/a", b"", make_parents=True)
        await store.put(f"{folder}/a", b"1", 0)
        with pytest.raises(MetadataAccessError):
            await store.delete(f"{folder}/a")
        async with session(zookeeper, as_user(tmp_path, "admin")) as admins:
            await admins.delete(f"{folder}/a")


async def test_an_acl_is_changed_at_its_version_only(mine: ZooKeeperStore, folder: str) -> None:
    found = await mine.acl(folder)
    assert found is not None
    assert found.has_children

    await mine.set_acl(folder, (*OWN, *READ), found.version)

    with pytest.raises(BadVersionError):
        await mine.set_acl(folder, OWN, found.version)
    with pytest.raises(NoNodeError):
        await mine.set_acl(f"{folder}/nothing", OWN, 0)
    assert await acl_of(mine, folder) == (*OWN, *READ)
    assert await mine.acl(f"{folder}/nothing") is None


async def test_an_acl_that_zookeeper_does_not_take_is_a_refusal(
    zookeeper: ZooKeeperProcess, folder: str, tmp_path: Path
) -> None:
    settings = as_user(tmp_path, "me", zookeeper_acl="ip:no.address:cdrw")
    async with session(zookeeper, settings) as store:
        with pytest.raises(MetadataAccessError, match="no such ACL"):
            await store.create(folder, b"")


async def test_a_new_session_is_the_same_users(
    zookeeper: ZooKeeperProcess, mine: ZooKeeperStore, folder: str
) -> None:
    seen: list[Node | None] = []
    await mine.ephemeral(f"{folder}/e", b"")
    await mine.watch(f"{folder}/a", seen.append)

    await expire(zookeeper, mine)

    assert await mine.put(f"{folder}/a", b"again", 0) == 1
    await until(lambda: seen[-1] is not None and seen[-1].value == b"again")

    async def is_back() -> bool:
        node = await mine.get(f"{folder}/e")
        return node is not None and node.is_own

    await until_read(is_back, bool)
    assert await acl_of(mine, f"{folder}/e") == OWN


async def test_a_user_that_is_shut_out_for_a_while_reports_nothing_meanwhile(
    zookeeper: ZooKeeperProcess, mine: ZooKeeperStore, folder: str, tmp_path: Path
) -> None:
    """Neither that a node is gone nor that a folder is empty; and it goes on by itself when it is let in again."""
    nodes: list[Node | None] = []
    names: list[list[str]] = []
    await mine.watch(f"{folder}/a", nodes.append)
    await mine.watch_children(folder, names.append)
    await mine.ephemeral(f"{folder}/e", b"")
    await until(lambda: names[-1] == ["a", "e"])
    shut, own = parse_acl("world:anyone:a"), OWN
    async with session(zookeeper, NOBODY) as others:
        versions = {}
        for path in (folder, f"{folder}/a"):
            found = await mine.acl(path)
            assert found is not None
            await mine.set_acl(path, shut, found.version)
            versions[path] = found.version + 1

        await expire(zookeeper, mine)
        with pytest.raises(MetadataAccessError):
            await mine.get(f"{folder}/a")
        assert names[-1] == ["a", "e"]
        assert nodes[-1] is not None

        for path, version in versions.items():
            await others.set_acl(path, own, version)

    async def is_registered() -> bool:
        node = await mine.get(f"{folder}/e")
        return node is not None and node.is_own

    await until_read(is_registered, bool)
    await mine.put(f"{folder}/a", b"seen", 0)
    await until(lambda: nodes[-1] is not None and nodes[-1].value == b"seen")
    assert None not in nodes
    assert [] not in names


class WithoutDigest(ConfiguredZooKeeper):
    """Knows nobody by a digest."""

    lines: Mapping[str, object] = {"DigestAuthenticationProvider.enabled": "false"}


class ForUsersOnly(ConfiguredZooKeeper):
    """Serves nobody whom it has not authenticated."""

    lines: Mapping[str, object] = {
        "enforce.auth.enabled": "true",
        "enforce.auth.schemes": "digest",
    }


async def test_a_server_that_authenticates_nobody_so_is_an_error_at_once(
    tmp_path: Path, me: ZooKeeperSettings
) -> None:
    with WithoutDigest(tmp_path / "server") as process:
        for _ in range(3):
            with pytest.raises(
                MetadataAccessError, match=r"does not authenticate this user.*user=me"
            ):
                async with session(process, me):
                    pass


async def test_a_user_that_a_server_does_not_know_any_more_hears_it_with_each_request(
    tmp_path: Path, me: ZooKeeperSettings
) -> None:
    first = ConfiguredZooKeeper(tmp_path / "server")
    first.lines = {}
    with first as process:
        async with session(process, me) as store:
            await store.create("/a", b"")
            await asyncio.to_thread(process.stop)
            first.lines = WithoutDigest.lines
            await asyncio.to_thread(process.start)
            for _ in range(3):
                await refused_in_time(store)
            await asyncio.to_thread(process.stop)
            first.lines = {}
            await asyncio.to_thread(process.start)

            assert await until_answered(store) is not None


async def refused_in_time(store: ZooKeeperStore) -> None:
    """It may have no connection yet."""
    async with asyncio.timeout(seconds(30)):
        while True:
            try:
                await store.get("/a")
            except MetadataAccessError:
                return
            except MetadataUnavailableError:
                continue


async def until_answered(store: ZooKeeperStore) -> Node | None:
    async with asyncio.timeout(seconds(30)):
        while True:
            with suppress(MetadataAccessError, MetadataUnavailableError):
                return await store.get("/a")
            await asyncio.sleep(0.05)


async def test_a_server_for_users_only_refuses_nobody_in_particular(
    tmp_path: Path, me: ZooKeeperSettings
) -> None:
    with ForUsersOnly(tmp_path / "server") as process:
        async with session(process, me) as store:
            await store.create("/a", b"")
        async with session(process, NOBODY) as store:
            with pytest.raises(MetadataAccessError, match="only users that it has authenticated"):
                await store.create("/b", b"")


def test_whoever_asks_for_all_that_kazoo_says_is_not_told_a_password(
    caplog: pytest.LogCaptureFixture,
) -> None:
    logger = zookeeper_session._KAZOO_LOGGER
    with caplog.at_level(logging.DEBUG, logger.name):
        logger.debug("Sending request(xid=%s): %s", -4, Auth(0, "digest", "me:secret"))
        logger.debug("Sending request(xid=%s): %s", 1, "another")
    assert "another" in caplog.text
    assert "secret" not in caplog.text
