"""TLS of a process: what its files must be, and that they may be replaced under it."""

from __future__ import annotations

import contextlib
import os
import resource
import ssl
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from bookkeeper_metadata.foundation.tls import contexts
from bookkeeper_metadata.foundation.tls.contexts import Tls, TlsFilesError, tls_of
from bookkeeper_metadata.foundation.tls.settings import TlsFiles, TlsSettings
from tests.doubles.certificates import HOST, Authority


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "authority")


def agree(client: ssl.SSLContext, server: ssl.SSLContext, host: str = HOST) -> str | None:
    """What a client and a server come to in memory: the version, or nothing yet; raises ``SSLError``."""
    pipes = [ssl.MemoryBIO() for _ in range(4)]
    one = client.wrap_bio(pipes[0], pipes[1], server_hostname=host)
    other = server.wrap_bio(pipes[2], pipes[3], server_side=True)
    for _ in range(4):
        for end in (one, other):
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
        pipes[2].write(pipes[1].read())
        pipes[0].write(pipes[3].read())
    return other.version()


def test_both_ends_of_one_authority_agree(authority: Authority) -> None:
    task, bookie = Tls(authority.files("task")), Tls(authority.files("bookie"))
    server = bookie.server_context(wants_certificate=True)
    assert agree(task.client_context(), server) == "TLSv1.3"
    old = Tls(authority.files("task")).client_context()
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    assert agree(old, server) == "TLSv1.2"


def test_a_common_name_is_no_host(authority: Authority) -> None:
    name = "bookie.example"
    client = Tls(authority.files("task")).client_context()
    named = Tls(authority.files_of_names("named", [name]))
    with pytest.raises(ssl.SSLCertVerificationError):
        agree(client, named.server_context(wants_certificate=False), name)
    served = Tls(authority.files("bookie", name))
    assert agree(client, served.server_context(wants_certificate=False), name) == "TLSv1.3"


def test_a_pipe_in_place_of_a_file_is_not_waited_for(authority: Authority) -> None:
    files = authority.files("task")
    for path in (files.trust_path, files.certificate_path, files.key_path):
        kept = Path(path).read_bytes()
        Path(path).unlink()
        os.mkfifo(path)
        with pytest.raises(TlsFilesError, match="no ordinary file"):
            Tls(files)
        Path(path).unlink()
        Path(path).write_bytes(kept)


def test_nothing_below_version_1_2_is_spoken(authority: Authority) -> None:
    tls = Tls(authority.files("both"))
    for context in (tls.client_context(), tls.server_context(wants_certificate=False)):
        assert context.minimum_version is ssl.TLSVersion.TLSv1_2
        assert context.options & ssl.OP_NO_RENEGOTIATION
    assert tls.client_context().check_hostname
    assert tls.client_context().verify_mode is ssl.CERT_REQUIRED
    assert tls.server_context(wants_certificate=True).verify_mode is ssl.CERT_REQUIRED


def test_a_certificate_that_has_expired_is_none(authority: Authority) -> None:
    past = datetime(2020, 1, 2, tzinfo=UTC)
    server = Tls(authority.files("late", expires_at=past)).server_context(wants_certificate=False)
    with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
        agree(Tls(authority.trust_only).client_context(), server)


def test_a_certificate_and_its_key_may_share_a_file(authority: Authority) -> None:
    apart = authority.files("task")
    both = authority.place / "both.pem"
    both.write_bytes(Path(apart.key_path).read_bytes() + Path(apart.certificate_path).read_bytes())
    together = Tls(TlsFiles(apart.trust_path, str(both)))
    assert together.pem().key == together.pem().certificate == both.read_bytes()
    assert agree(Tls(apart).client_context(), together.server_context(wants_certificate=True))


@pytest.mark.parametrize("which", ["trust_path", "certificate_path", "key_path"])
@pytest.mark.parametrize("how", ["missing", "empty", "garbage", "a folder"])
def test_a_file_that_is_not_what_it_should_be_is_named(
    which: str, how: str, authority: Authority
) -> None:
    files = authority.files("task")
    bad = authority.place / "bad"
    if how == "a folder":
        bad.mkdir()
    elif how != "missing":
        bad.write_bytes(b"" if how == "empty" else b"\x00not PEM\n" * 10)
    with pytest.raises(TlsFilesError, match="bad"):
        Tls(replace(files, **{which: str(bad)}))


def test_an_encrypted_key_is_refused_and_nobody_is_asked(authority: Authority) -> None:
    files = authority.files("task")
    key = load_pem_private_key(Path(files.key_path).read_bytes(), None)
    locked = BestAvailableEncryption(b"passphrase")
    Path(files.key_path).write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, locked))
    with pytest.raises(TlsFilesError, match="encrypted"):
        Tls(files)


def test_a_key_of_another_certificate_is_refused(authority: Authority) -> None:
    files, other = authority.files("task"), authority.files("other")
    with pytest.raises(TlsFilesError, match=r"task\.pem.*other\.key"):
        Tls(replace(files, key_path=other.key_path))


def test_who_has_no_certificate_cannot_serve(authority: Authority) -> None:
    tls = Tls(authority.trust_only)
    assert tls.pem().certificate is None
    with pytest.raises(TlsFilesError, match="needs a certificate"):
        tls.server_context(wants_certificate=False)


def test_a_process_has_one_of_each(authority: Authority, tmp_path: Path) -> None:
    files = authority.files("task")
    assert tls_of(None) is None
    assert tls_of(files) is tls_of(replace(files))
    late = TlsFiles(str(tmp_path / "late.pem"))
    with pytest.raises(TlsFilesError):
        tls_of(late)
    (tmp_path / "late.pem").write_bytes(authority.trust_path.read_bytes())
    assert tls_of(late) is not None, "a file that was missing may come"


def test_files_are_looked_at_no_more_than_once_a_second(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 100.0
    monkeypatch.setattr(f"{contexts.__name__}.time.monotonic", lambda: now_s)
    tls = Tls(authority.files("task"))
    before = tls.pem()
    authority.files("task")
    assert tls.pem() is before
    now_s += 1.0
    assert tls.pem().certificate != before.certificate
    assert tls.generation == 1
    os.remove(authority.place / "task.pem")
    now_s += 1.0
    assert tls.generation == 1
    assert tls.pem().certificate != before.certificate, "what was loaded stays in force"


def test_what_failed_for_a_passing_reason_is_tried_again(
    authority: Authority, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The former certificate stayed in force until it expired."""
    monkeypatch.setattr(contexts, "_LOOK_AGAIN_S", 0.0)
    tls = Tls(authority.files("task"))
    before = tls.pem()
    authority.files("task")
    # Below every descriptor that is open: there is none for a file.
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        assert [tls.pem() for _ in range(3)] == [before] * 3
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    monkeypatch.setattr(tls, "_try_at_s", 0.0)
    assert tls.pem().certificate != before.certificate
    told = [each for each in caplog.messages if "are not used" in each]
    assert len(told) == 1, "it is said once"


def test_files_that_stay_bad_are_not_loaded_at_every_look(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes the event loop some milliseconds, with all that a system trusts in front."""
    now_s = 100.0
    monkeypatch.setattr(f"{contexts.__name__}.time.monotonic", lambda: now_s)
    loads = 0
    load = contexts._load

    def count(files: TlsFiles) -> object:
        nonlocal loads
        loads += 1
        return load(files)

    tls = Tls(authority.files("task"))
    monkeypatch.setattr(contexts, "_load", count)
    (authority.place / "task.key").write_bytes(b"no key")
    for _ in range(9):
        now_s += 1.0
        tls.look()
    assert loads == 1
    now_s += 10.0
    tls.look()
    assert loads == 2
    # What has changed since is looked at as soon as anything is.
    authority.files("task")
    now_s += 1.0
    tls.look()
    assert tls.generation == 1


def test_files_that_are_only_touched_are_no_others(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contexts, "_LOOK_AGAIN_S", 0.0)
    files = authority.files("task")
    tls = Tls(files)
    before = tls.pem()
    os.chmod(files.key_path, 0o400)
    assert tls.pem() is before
    assert tls.generation == 0


def test_files_that_are_replaced_while_they_are_loaded_are_looked_at_again(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contexts, "_LOOK_AGAIN_S", 0.0)
    tls, load = Tls(authority.files("task")), contexts._load

    def replace_meanwhile(files: TlsFiles) -> object:
        loaded = load(files)
        monkeypatch.setattr(contexts, "_load", load)
        authority.files("task")
        return loaded

    authority.files("task")
    monkeypatch.setattr(contexts, "_load", replace_meanwhile)
    tls.look()
    newest = (authority.place / "task.pem").read_bytes()
    assert tls.pem().certificate == newest


def test_a_right_that_is_given_later_is_noticed(authority: Authority) -> None:
    files = authority.files("task")
    os.chmod(files.key_path, 0o400)
    before = contexts._stamp_of(files)
    os.chmod(files.key_path, 0o600)
    assert contexts._stamp_of(files) != before


def test_a_key_that_changes_alone_is_noticed(authority: Authority) -> None:
    files = authority.files("task")
    before = contexts._stamp_of(files)
    os.utime(files.key_path, ns=(1, 1))
    assert contexts._stamp_of(files) != before


def test_a_file_that_another_takes_the_place_of_is_noticed_whatever_its_time(
    authority: Authority,
) -> None:
    """As where a folder of links is turned over to another."""
    path = authority.trust_path
    before, found = contexts._stamp(str(path)), path.stat()
    other = authority.place / "other.pem"
    other.write_bytes(path.read_bytes())
    os.utime(other, ns=(found.st_atime_ns, found.st_mtime_ns))
    other.replace(path)
    assert contexts._stamp(str(path)) != before


def test_what_it_shows_of_itself_holds_no_key(authority: Authority) -> None:
    assert "PRIVATE" not in repr(Tls(authority.files("task")).pem())


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ({"tls_certificate_path": "/c"}, "tls_trust_path"),
        ({"tls_trust_path": "/t", "tls_key_path": "/k"}, "tls_certificate_path"),
    ],
)
def test_a_path_without_the_one_that_it_needs_is_refused(
    given: dict[str, str], missing: str
) -> None:
    with pytest.raises(ValueError, match=f"needs {missing}"):
        TlsSettings(**given)  # type: ignore[arg-type]
