"""``bookkeeper metadata acl`` on a cluster that was made before there were users."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bookkeeper_metadata.store.acl import OPEN
from bookkeeper_metadata.store.zookeeper_settings import ZOOKEEPER_VARIABLES
from spark_bookkeeper.cli import run
from spark_bookkeeper.local.zookeeper import ZooKeeperProcess
from tests.doubles.cluster import ROOT
from tests.metadata.secure_zookeeper import user_file
from tests.spark_bookkeeper.guarded_cluster import (
    all_acls,
    grant,
    guarded_cluster,
    initialized,
    restrict,
)

pytestmark = [pytest.mark.zookeeper, pytest.mark.slow]
USER_VARIABLE = ZOOKEEPER_VARIABLES["zookeeper_auth_path"]


@pytest.fixture
def zookeeper(tmp_path: Path) -> Iterator[ZooKeeperProcess]:
    with ZooKeeperProcess(tmp_path / "zookeeper") as process:
        yield process


class Commands:
    """Run in this process; the environment says who one is."""

    def __init__(self, process: ZooKeeperProcess, capfd: pytest.CaptureFixture[str]) -> None:
        self.uri = f"zk+hierarchical://{process.service}{ROOT}"
        self._capfd = capfd

    def __call__(self, *arguments: str, code: int = 0) -> str:
        self._capfd.readouterr()
        found = run([*arguments, "--metadata-service-uri", self.uri])
        out, err = self._capfd.readouterr()
        assert found == code, out + err
        return out or err

    def json(self, *arguments: str, code: int = 0) -> Any:
        return json.loads(self(*arguments, "--json", code=code))


@pytest.fixture
def commands(
    zookeeper: ZooKeeperProcess,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Commands:
    for variable in ZOOKEEPER_VARIABLES.values():
        monkeypatch.delenv(variable, raising=False)
    asyncio.run(make_open_cluster(zookeeper, tmp_path))
    monkeypatch.setenv(USER_VARIABLE, user_file(tmp_path, "me"))
    return Commands(zookeeper, capfd)


async def make_open_cluster(process: ZooKeeperProcess, directory: Path) -> None:
    """By nobody in particular, with a log and bookies."""
    async with guarded_cluster(process, directory) as cluster:
        store = await initialized(cluster, "")
        await cluster.start_bookies(store)
        log = cluster.log(store)
        await log.create_log()


def restrict_by_hand(process: ZooKeeperProcess, directory: Path, user: str, **acls: str) -> None:
    """Nodes below the root that an administrator has given ACLs."""

    async def give() -> None:
        async with guarded_cluster(process, directory) as cluster:
            store = await cluster.session(user)
            for name, acl in acls.items():
                await restrict(store, f"{ROOT}/{name}", acl)

    asyncio.run(give())


def read_acls(process: ZooKeeperProcess, directory: Path, user: str = "me") -> dict[str, Any]:
    async def read() -> dict[str, Any]:
        async with guarded_cluster(process, directory) as cluster:
            store = await cluster.session(user)
            tops = (ROOT, f"{ROOT}-bookies", f"{ROOT}-logs")
            return {path: acl for top in tops for path, acl in (await all_acls(store, top)).items()}

    return asyncio.run(read())


def test_an_old_tree_is_checked_mended_and_then_another_users_no_more(
    commands: Commands, zookeeper: ZooKeeperProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = grant("me", "cdrwa")
    by_hand = {"INSTANCEID": grant("me", "r"), "idgen": grant("them", "cdrwa")}
    restrict_by_hand(zookeeper, tmp_path, "me", **by_hand)

    checked = commands.json("metadata", "acl", "check", code=1)
    assert (checked["wanted"], checked["as_wanted"], checked["mended"]) == ([own], 0, 0)
    assert (checked["stricter"], checked["unreadable"]) == (1, 1)
    assert checked["wider"] == checked["nodes"] - 2 > 20
    said = commands("metadata", "acl", "check", code=1)
    assert f"{checked['nodes']} nodes: " in said
    assert "wider  +world:anyone:cdrwa" in said
    assert "more" in said

    # Another user's node stays: mending lets nobody do more, and this user may not.
    mended = commands.json("metadata", "acl", "mend", "--yes", code=1)
    assert (mended["mended"], mended["unreadable"]) == (checked["wider"], 1)
    assert [each["path"] for each in mended["examples"] if each["finding"] == "unreadable"] == [
        f"{ROOT}/idgen"
    ]
    again = commands.json("metadata", "acl", "mend", "--yes", code=1)
    assert again["mended"] == 0

    restrict_by_hand(zookeeper, tmp_path, "them", idgen=own)
    clean = commands.json("metadata", "acl", "check")
    assert (clean["stricter"], clean["wider"], clean["examples"][0]["path"]) == (
        1,
        0,
        f"{ROOT}/INSTANCEID",
    )

    monkeypatch.delenv(USER_VARIABLE)
    assert "BK_METADATA_ACCESS" in commands("cluster", "info", code=1)
    assert "user=none" in commands("logs", "list", code=1)
    assert "BK_METADATA_ACCESS" in commands("metadata", "acl", "check", code=1)


def test_mending_asks_first_and_says_what_it_gives(
    commands: Commands, zookeeper: ZooKeeperProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ZOOKEEPER_VARIABLES["zookeeper_acl"], "world:anyone:r")

    said = commands("metadata", "acl", "mend", code=1)

    assert f"{grant('me', 'cdrwa')},world:anyone:r" in said
    assert read_acls(zookeeper, tmp_path, "them")[f"{ROOT}/LAYOUT"] == OPEN


def test_exact_mending_hands_a_tree_to_another_password(
    commands: Commands, zookeeper: ZooKeeperProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First both may, then the new one alone: at no time is a process shut out that knows either."""
    commands("metadata", "acl", "mend", "--yes")
    commands("metadata", "acl", "check")
    monkeypatch.setenv(ZOOKEEPER_VARIABLES["zookeeper_acl"], grant("new", "cdrwa"))

    assert commands.json("metadata", "acl", "check")["stricter"] > 20
    assert commands.json("metadata", "acl", "mend", "--yes")["mended"] == 0
    both = commands.json("metadata", "acl", "mend", "--yes", "--exact")
    assert both["mended"] == both["nodes"]

    monkeypatch.setenv(USER_VARIABLE, user_file(tmp_path, "new"))
    monkeypatch.delenv(ZOOKEEPER_VARIABLES["zookeeper_acl"])
    alone = commands.json("metadata", "acl", "mend", "--yes")
    assert alone["mended"] == alone["nodes"]
    commands("cluster", "info")
    acls = read_acls(zookeeper, tmp_path, "new")
    assert {",".join(map(str, acl)) for acl in acls.values()} == {grant("new", "cdrwa")}


def test_a_tree_of_another_password_of_the_same_name_is_not_as_wanted(
    commands: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a password got out: who knows it could do everything, and the check was content."""
    monkeypatch.setenv(ZOOKEEPER_VARIABLES["zookeeper_acl"], "world:anyone:r")
    commands("metadata", "acl", "mend", "--yes")
    other = tmp_path / "other"
    other.write_text("me:another password\n", encoding="utf-8")
    monkeypatch.setenv(USER_VARIABLE, str(other))

    checked = commands.json("metadata", "acl", "check", code=1)
    assert checked["different"] == checked["by_name"] == checked["nodes"]
    refused = commands.json("metadata", "acl", "mend", "--yes", "--exact", code=1)
    assert (refused["mended"], refused["refused"]) == (0, checked["nodes"])


def test_in_nobodys_shell_an_open_tree_is_not_said_to_be_well(
    commands: Commands, zookeeper: ZooKeeperProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(USER_VARIABLE)

    assert "as wanted" in commands("metadata", "acl", "check", code=1)
    said = commands("metadata", "acl", "mend", "--yes", "--exact", code=2)
    assert USER_VARIABLE in said
    assert read_acls(zookeeper, tmp_path)[f"{ROOT}/LAYOUT"] == OPEN


def test_a_file_that_is_missing_is_named_and_nothing_is_done(
    commands: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = str(tmp_path / "missing")
    monkeypatch.setenv(USER_VARIABLE, missing)
    assert (
        f"BK_CREDENTIALS_FILE: no user and password in the file: No such file or directory. path={missing}"
        in (commands("cluster", "info", code=1))
    )
    monkeypatch.setenv(ZOOKEEPER_VARIABLES["zookeeper_trust_path"], missing)
    assert "BK_TLS_FILES" in commands("logs", "list", code=1)
    monkeypatch.setenv(ZOOKEEPER_VARIABLES["zookeeper_acl"], "nonsense")
    assert "BOOKKEEPER_ZOOKEEPER_ACL" in commands("cookies", "list", code=2)
