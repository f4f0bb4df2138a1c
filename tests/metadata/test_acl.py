"""Who may do what: how it is written, what a user's nodes get, what differs, and the files that say who one is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bookkeeper_metadata.errors import CredentialsFileError
from bookkeeper_metadata.foundation.tls.contexts import TlsFilesError
from bookkeeper_metadata.store.acl import (
    ALL,
    OPEN,
    Acl,
    Grant,
    acl_for,
    difference,
    digest_id,
    parse_acl,
)
from bookkeeper_metadata.store.connect import connect
from bookkeeper_metadata.store.zookeeper_access import load_access
from bookkeeper_metadata.store.zookeeper_settings import ZOOKEEPER_VARIABLES, ZooKeeperSettings

# As ZooKeeper's own class prints it: DigestAuthenticationProvider super:test.
SUPER = Grant("digest", "super:D/InIHSb7yEEbrWz8b9l71RjZJU=", ALL)
READERS = Grant("world", "anyone", 1)


def acl(text: str) -> Acl:
    """Grants as ZooKeeper may tell them: digests may be hidden, and one identity have several."""
    parts = [part.strip().split(":", 1) for part in text.split(",") if part]
    split = [(scheme, *rest.rsplit(":", 1)) for scheme, rest in parts]
    bits = {"c": 4, "d": 8, "r": 1, "w": 2, "a": 16}
    return tuple(
        Grant(scheme, id, sum(map(bits.__getitem__, letters))) for scheme, id, letters in split
    )


def test_a_digest_is_the_one_that_zookeeper_makes() -> None:
    assert digest_id("super:test") == SUPER.id


@pytest.mark.parametrize(
    ("text", "grants"),
    [
        ("", ()),
        ("world:anyone:r", (READERS,)),
        (" world:anyone:r , world:anyone:w", (Grant("world", "anyone", 3),)),
        ("digest:super:D/InIHSb7yEEbrWz8b9l71RjZJU=:adwrc", (SUPER,)),
        ("ip:10.0.0.0/8:cdrw", (Grant("ip", "10.0.0.0/8", 15),)),
        (
            "x509:CN=spark,OU=a b,O=c:r,sasl:bk/host@REALM:cdrwa",
            (Grant("sasl", "bk/host@REALM", ALL), Grant("x509", "CN=spark,OU=a b,O=c", 1)),
        ),
    ],
)
def test_an_acl_is_written_as_zookeepers_tools_write_it(text: str, grants: Acl) -> None:
    assert parse_acl(text) == grants
    assert parse_acl(",".join(map(str, grants))) == grants


@pytest.mark.parametrize(
    "text",
    [
        "world:anyone",
        "world:me:r",
        "digest:spark:cdrw",
        "digest:spark:secret:cdrw",
        "digest:spark:secret",
        "auth::cdrwa",
        "auth:spark:secret:cdrwa",
        "spark:secret:cdrwa",
        "digest:spark secret:cdrwa",
        "digest:secret:cdrwa",
        "digest:spark:Other,secret:cdrwa",
        "digest:spark:Other,Secret secret:cdrwa",
        "DIGEST:spark:secret:cdrwa",
        "world:anyone:r,spark:secret",
        "digest:spark:secret\n:cdrwa",
        "x:y:q",
        "a",
    ],
)
def test_what_is_no_acl_is_refused_with_its_text(text: str) -> None:
    with pytest.raises(ValueError, match="zookeeper_acl") as refused:
        ZooKeeperSettings(zookeeper_auth_path="/f", zookeeper_acl=text)
    # A password may have been taken for what ZooKeeper makes of it.
    assert "secret" not in str(refused.value)


def test_a_user_has_everything_unless_the_acl_names_it() -> None:
    spark = f"digest:{digest_id('spark:1')}:cdrw"
    own = f"digest:{SUPER.id}:cr"

    assert acl_for("super:test", ()) == (SUPER,)
    assert acl_for("super:test", acl(spark)) == (*acl(spark), SUPER)
    assert acl_for("super:test", acl(f"{own},{spark}")) == acl(f"{own},{spark}")


@pytest.mark.parametrize(
    ("found", "wanted", "excess", "lacking"),
    [
        ("world:anyone:cdrwa", "digest:a:1:cdrwa", "world:anyone:cdrwa", ""),
        ("digest:a:1:cdrwa", "digest:a:1:cdrwa", "", ""),
        ("digest:a:1:cdrwa", "world:anyone:cdrwa", "", "world:anyone:cdrwa"),
        ("digest:a:1:r", "digest:a:1:cdrwa", "", "digest:a:1:cdwa"),
        ("digest:b:1:cdrwa", "digest:a:1:cdrwa", "digest:b:1:cdrwa", "digest:a:1:cdrwa"),
        # What anybody may, everybody may.
        ("world:anyone:r,digest:a:1:cdwa", "world:anyone:r,digest:a:1:cdrwa", "", ""),
        ("world:anyone:r,digest:a:1:cdrwa", "digest:a:1:cdrwa", "world:anyone:r", ""),
        # Another password is another user.
        ("digest:a:2:cdrwa", "digest:a:1:cdrwa", "digest:a:2:cdrwa", "digest:a:1:cdrwa"),
        # Of one identity ZooKeeper may keep several grants.
        ("world:anyone:cdrw,world:anyone:a", "world:anyone:a", "world:anyone:cdrw", ""),
        # Masked for who may not administer the node.
        ("digest:b:x:r", "digest:b:1:r", "", ""),
        ("digest:a:x:crw", "digest:a:1:cdrwa", "", "digest:a:1:da"),
        ("digest:b:x:cdrwa", "digest:a:1:cdrwa", "digest:b:x:cdrwa", "digest:a:1:cdrwa"),
        ("digest:b:x:r,digest:b:x:cdrwa", "digest:b:1:r", "digest:b:x:cdrwa", ""),
        # Who may administer it is shown its digests, so this is somebody else of the same name.
        ("digest:a:x:cdrwa", "digest:a:1:cdrwa", "digest:a:x:cdrwa", "digest:a:1:cdrwa"),
    ],
)
def test_what_differs_between_two_acls(found: str, wanted: str, excess: str, lacking: str) -> None:
    between = difference(acl(found), acl(wanted), ("digest", "a:1"))

    assert (between.excess, between.lacking) == (acl(excess), acl(lacking))
    assert between.is_by_name == (":x:" in found)


def test_settings_that_are_no_use_without_others_are_refused() -> None:
    with pytest.raises(ValueError, match="zookeeper_certificate_path needs zookeeper_trust_path"):
        ZooKeeperSettings(zookeeper_certificate_path="/c")
    with pytest.raises(ValueError, match="zookeeper_key_path needs zookeeper_certificate_path"):
        ZooKeeperSettings(zookeeper_trust_path="/t", zookeeper_key_path="/k")
    with pytest.raises(ValueError, match="must grant somebody everything"):
        ZooKeeperSettings(zookeeper_acl="world:anyone:r")
    ZooKeeperSettings(zookeeper_acl="x509:CN=bookie:cdrwa,world:anyone:r")


def test_a_setting_has_one_variable_in_every_process() -> None:
    assert ZOOKEEPER_VARIABLES["zookeeper_auth_path"] == "BOOKKEEPER_ZOOKEEPER_AUTH_PATH"


def test_user_and_password_are_the_first_line_and_the_password_is_shown_nowhere(
    tmp_path: Path,
) -> None:
    path = tmp_path / "auth"
    path.write_text("super:test\nsomething else\n")

    access = load_access(ZooKeeperSettings(zookeeper_auth_path=str(path)))

    assert (access.user, access.credential) == ("super", "super:test")
    assert access.acl == (SUPER,)
    assert "test" not in repr(access)


def test_without_user_and_acl_nodes_are_anybodys() -> None:
    assert load_access(ZooKeeperSettings()).acl == OPEN


@pytest.mark.parametrize(
    "content", [b"", b"nobody\n", b":password\n", b"user:\n", b"user:p\xffq\n"]
)
def test_a_file_without_user_and_password_is_named_and_its_content_is_not(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "auth"
    path.write_bytes(content)

    with pytest.raises(CredentialsFileError, match=f"path={path}$") as refused:
        load_access(ZooKeeperSettings(zookeeper_auth_path=str(path)))

    assert "nobody" not in str(refused.value)
    assert "password" not in str(refused.value).replace("user and password", "").replace(
        "user:password", ""
    )
    assert refused.value.__cause__ is None


async def test_a_file_that_is_not_there_ends_the_connecting_before_it_begins(
    tmp_path: Path,
) -> None:
    missing = str(tmp_path / "missing")
    nowhere = "zk+hierarchical://127.0.0.1:1/ledgers"

    with pytest.raises(CredentialsFileError, match=f"No such file.*path={missing}"):
        await connect(nowhere, security=ZooKeeperSettings(zookeeper_auth_path=missing))
    with pytest.raises(TlsFilesError, match=f"path={missing}"):
        await connect(nowhere, security=ZooKeeperSettings(zookeeper_trust_path=missing))


def test_an_acl_that_leaves_nobody_who_may_change_it_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "auth"
    path.write_text("me:secret\n", encoding="utf-8")
    own = f"digest:{digest_id('me:secret')}:crw"

    with pytest.raises(CredentialsFileError, match="never be changed again"):
        load_access(ZooKeeperSettings(zookeeper_auth_path=str(path), zookeeper_acl=own))


def test_blanks_are_part_of_a_password_and_a_byte_order_mark_is_not_part_of_a_user(
    tmp_path: Path,
) -> None:
    path = tmp_path / "auth"
    path.write_bytes(b"me:a b \r\n")
    assert load_access(ZooKeeperSettings(zookeeper_auth_path=str(path))).credential == "me:a b "
    path.write_bytes(b"\xef\xbb\xbfme:secret\n")
    with pytest.raises(CredentialsFileError, match="byte order mark"):
        load_access(ZooKeeperSettings(zookeeper_auth_path=str(path)))


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "auth"
    os.mkfifo(path)
    with pytest.raises(CredentialsFileError, match="no regular file"):
        load_access(ZooKeeperSettings(zookeeper_auth_path=str(path)))
