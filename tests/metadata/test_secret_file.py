"""A secret's file: read, or refused by name; whoever may read it besides is told of, once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bookkeeper_metadata.foundation.secret_file import read_secret
from bookkeeper_metadata.foundation.tls.contexts import Tls
from bookkeeper_metadata.foundation.tls.settings import TlsFiles
from tests.doubles.certificates import Authority


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "authority")


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    file = tmp_path / "password"
    file.write_bytes(b"opens it\r\nand a remark\n")
    file.chmod(0o600)
    return file


def test_a_secret_is_the_first_line_without_its_end(secret: Path) -> None:
    assert read_secret(str(secret)) == b"opens it"


@pytest.mark.parametrize("content", [b"", b"\nsecond", b"x" * 5_000])
def test_a_first_line_that_can_be_no_secret_is_refused_by_name(
    secret: Path, content: bytes
) -> None:
    secret.write_bytes(content)
    with pytest.raises(OSError, match="its first line is empty or too long") as refusal:
        read_secret(str(secret))
    assert refusal.value.filename == str(secret)


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(pipe := tmp_path / "pipe")
    with pytest.raises(OSError, match="no regular file"):
        read_secret(str(pipe))


def test_a_file_that_every_user_may_read_is_named_once(
    secret: Path, caplog: pytest.LogCaptureFixture
) -> None:
    read_secret(str(secret))
    assert not caplog.messages

    open_to_all = secret.with_name("open")
    open_to_all.write_bytes(b"known\n")
    open_to_all.chmod(0o644)
    for _ in range(2):
        assert read_secret(str(open_to_all)) == b"known"

    assert [message.endswith(f"path={open_to_all}") for message in caplog.messages] == [True]


@pytest.mark.parametrize("is_one_file", [False, True])
def test_so_is_a_file_with_a_key(
    authority: Authority, is_one_file: bool, caplog: pytest.LogCaptureFixture
) -> None:
    files = authority.files("task")
    if is_one_file:
        both = Path(files.key_path).read_bytes() + Path(files.certificate_path).read_bytes()
        Path(files.certificate_path).write_bytes(both)
        files = TlsFiles(files.trust_path, files.certificate_path)
    secret = Path(files.key_path or files.certificate_path)
    secret.chmod(0o644)

    Tls(files)

    assert [message.endswith(f"path={secret}") for message in caplog.messages] == [True]
