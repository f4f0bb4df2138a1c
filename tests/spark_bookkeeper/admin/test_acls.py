"""What a walk through the ACLs of a cluster finds, changes and leaves, whatever happens meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from bookkeeper_metadata.errors import MetadataAccessError, MetadataUnavailableError
from bookkeeper_metadata.store.acl import ALL, OPEN, Acl, Grant, NodeAcl
from bookkeeper_metadata.store.operations import BadVersionError, NoNodeError
from spark_bookkeeper.admin import acls
from spark_bookkeeper.admin.acls import (
    EXAMPLES_MAX,
    AclReport,
    Finding,
    Mending,
    go_through_acls,
)

ME = Grant("digest", "me:1", ALL)
OURS: Acl = (ME, Grant("world", "anyone", 1))
STRICT: Acl = (ME,)
THEIRS: Acl = (Grant("digest", "them:1", ALL),)


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acls, "_ATTEMPT_PAUSE_S", 0)


@dataclass
class FakeTree:
    """ACLs by path; what is asked and changed passes ``on_request``, which may raise."""

    acls: dict[str, Acl]
    versions: dict[str, int] = field(default_factory=dict)
    on_request: Callable[[str, str], None] = lambda _verb, _path: None

    async def children(self, path: str) -> list[str] | None:
        self.on_request("children", path)
        return sorted(
            other.rpartition("/")[2] for other in self.acls if other.rpartition("/")[0] == path
        )

    async def acl(self, path: str) -> NodeAcl | None:
        self.on_request("acl", path)
        if path not in self.acls:
            return None
        has_children = any(other.startswith(f"{path}/") for other in self.acls)
        return NodeAcl(self.acls[path], self.versions.get(path, 0), has_children)

    async def set_acl(self, path: str, acl: Acl, expected_version: int) -> None:
        self.on_request("set", path)
        if path not in self.acls:
            raise NoNodeError(path)
        if self.versions.get(path, 0) != expected_version:
            raise BadVersionError(path)
        self.acls[path] = acl
        self.versions[path] = expected_version + 1


def tree() -> FakeTree:
    return FakeTree(
        {
            "/other": OPEN,
            "/l": OPEN,
            "/l/cookies": OURS,
            "/l/cookies/b1:1": OPEN,
            "/l/strict": STRICT,
            "/l/theirs": THEIRS,
            "/l-bookies": OPEN,
            "/l-logs": OPEN,
            "/l-logs/names": OPEN,
        }
    )


def counts(report: AclReport) -> dict[str, int]:
    return {finding.name: count for finding, count in report.left.items() if count}


def refuse(*wanted: tuple[str, str]) -> Callable[[str, str], None]:
    def on_request(verb: str, path: str) -> None:
        if (verb, path) in wanted:
            raise MetadataAccessError("not allowed", path, "me", "zk")

    return on_request


async def test_a_check_changes_nothing_and_says_what_is_open() -> None:
    found = tree()
    before = dict(found.acls)

    report = await go_through_acls(found, "/l", OURS)

    assert found.acls == before
    assert report.nodes == 8
    assert counts(report) == {"WIDER": 5, "AS_WANTED": 1, "STRICTER": 1, "DIFFERENT": 1}
    assert (report.open, report.mended) == (6, 0)
    named = {each.path: each.detail for each in report.examples}
    assert named["/l/theirs"] == "+digest:them:1:cdwa -digest:me:1:cdrwa -world:anyone:r"
    assert "/l/cookies" not in named


async def test_mending_lets_nobody_do_more_and_a_second_time_changes_nothing() -> None:
    found = tree()

    report = await go_through_acls(found, "/l", OURS, mending=Mending())

    left = {path: acl for path, acl in found.acls.items() if acl != OURS}
    assert left == {"/other": OPEN, "/l/strict": STRICT, "/l/theirs": THEIRS}
    assert (report.mended, report.open) == (5, 1)
    versions = dict(found.versions)
    again = await go_through_acls(found, "/l", OURS, mending=Mending())
    assert (again.mended, found.versions) == (0, versions)


async def test_exact_mending_gives_every_node_the_acl() -> None:
    found = tree()

    report = await go_through_acls(found, "/l", OURS, mending=Mending(is_exact=True))

    assert {path for path, acl in found.acls.items() if acl != OURS} == {"/other"}
    assert (report.mended, report.open) == (7, 0)


async def test_what_cannot_be_seen_or_changed_is_open_and_the_rest_is_mended() -> None:
    found = tree()
    found.on_request = refuse(
        ("acl", "/l-bookies"), ("children", "/l/cookies"), ("set", "/l-logs/names")
    )

    report = await go_through_acls(found, "/l", OURS, mending=Mending())

    details = {each.path: (each.finding, each.detail) for each in report.examples}
    assert details["/l-bookies"] == (Finding.UNREADABLE, "not allowed")
    assert details["/l/cookies/*"] == (Finding.UNREADABLE, "not allowed")
    assert details["/l-logs/names"][1].endswith("not changed: not allowed")
    assert (report.mended, report.open, report.refused) == (2, 4, 1)


async def test_a_node_that_may_not_be_changed_does_not_hide_what_is_below_it() -> None:
    found = tree()
    found.on_request = refuse(("set", "/l"))

    report = await go_through_acls(found, "/l", OURS, mending=Mending())

    assert found.acls["/l/cookies/b1:1"] == OURS
    assert (report.mended, report.refused) == (4, 1)


async def test_a_node_that_is_changed_again_and_again_is_named_and_the_rest_is_mended() -> None:
    found = tree()

    def change(verb: str, path: str) -> None:
        if (verb, path) == ("set", "/l"):
            found.versions[path] = found.versions.get(path, 0) + 1

    found.on_request = change
    report = await go_through_acls(found, "/l", OURS, mending=Mending())

    assert (report.mended, report.refused, report.open) == (4, 1, 2)


async def test_another_password_of_ones_own_name_is_another_user() -> None:
    """ZooKeeper hides the digests of a node from whoever may not administer it."""
    readers = Grant("digest", "readers:x", 1)
    masked: Acl = (Grant("digest", "me:x", ALL), readers)
    wanted: Acl = (ME, Grant("digest", "readers:2", 1))
    found = FakeTree({"/l": masked, "/l/known": (ME, readers)})

    report = await go_through_acls(found, "/l", wanted, own=("digest", "me:1"))

    assert counts(report) == {"DIFFERENT": 1, "AS_WANTED": 1}
    assert report.by_name == 2


async def test_a_node_that_goes_or_that_another_changes_is_no_error() -> None:
    found = tree()
    busy = iter(range(2))

    def on_request(verb: str, path: str) -> None:
        if (verb, path) == ("acl", "/l-logs/names"):
            found.acls.pop(path, None)
        if (verb, path) == ("set", "/l-bookies"):
            found.acls.pop(path, None)
        if (verb, path) == ("set", "/l/cookies/b1:1") and next(busy, None) is not None:
            found.versions[path] = found.versions.get(path, 0) + 1

    found.on_request = on_request
    report = await go_through_acls(found, "/l", OURS, mending=Mending())

    assert found.acls["/l/cookies/b1:1"] == OURS
    assert report.nodes == 6


async def test_a_lost_reply_is_asked_for_again_and_an_outage_ends_the_walk() -> None:
    found = tree()
    lost = iter(range(1))

    def lose(verb: str, path: str) -> None:
        if (verb, path) == ("set", "/l") and next(lost, None) is not None:
            found.acls[path], found.versions[path] = OURS, 1
            raise MetadataUnavailableError("zk", "no answer")

    found.on_request = lose
    report = await go_through_acls(found, "/l", OURS, mending=Mending())
    assert (found.versions["/l"], report.mended) == (1, 4)

    def fail(verb: str, path: str) -> None:
        raise MetadataUnavailableError("zk", "no answer")

    found.on_request = fail
    with pytest.raises(MetadataUnavailableError):
        await go_through_acls(found, "/l", OURS)


async def test_a_large_tree_is_asked_about_a_part_at_a_time_and_named_in_part() -> None:
    found = FakeTree({"/l": OURS, **{f"/l/{number:04d}": OPEN for number in range(500)}})
    seen: list[int] = []

    report = await go_through_acls(
        found, "/l", OURS, on_progress=lambda report: seen.append(report.nodes)
    )

    assert (report.nodes, report.open, len(report.examples)) == (501, 500, EXAMPLES_MAX)
    assert seen == list(range(1, 502))
    document = report.as_document()
    assert (document["wider"], document["as_wanted"], document["unreadable"]) == (500, 1, 0)
    assert document["wanted"] == ["digest:me:1:cdrwa", "world:anyone:r"]
