"""Common names of certificates: whose they are, whatever their letters, and that nobody without one has a role."""

from __future__ import annotations

from pathlib import Path

import pytest

from bookie_server.core.roles import Roles
from bookie_server.wire.messages import Status
from bookie_server.wire.rpc import messages, v2, v3
from tests.doubles.certificates import SOME_ROLES
from tests.doubles.records import encoded_section, write
from tests.doubles.secured_bookie import IMPATIENT, Secured, audited, each_carrier, serving

pytestmark = pytest.mark.integration

LEDGER = 7
INFO = b"".join(v3.encode_request(1, messages.GetInfo(3)))


@each_carrier
@pytest.mark.parametrize(
    "names", [["admin\0evil"], ["admin", "task"], ["task", "admin"], [""], ["x,CN=admin"], []]
)
async def test_who_is_not_plainly_one_of_those_named_is_nobody(
    carrier: str, names: list[str], secured: Secured
) -> None:
    files = secured.authority.files_of_names("odd", [each or " " for each in names])
    client = secured.client(carrier, files, IMPATIENT)
    assert await write(client, encoded_section([b"secret"], 0)) is Status.UNREACHABLE
    assert not (await client.list_page(LEDGER, 0)).held
    assert LEDGER not in secured.bookie.storage.contents.ledgers


@pytest.mark.parametrize("frame", [INFO, b"".join(v2.encode_request(messages.ReadEntry(7, 0)))])
@pytest.mark.parametrize(
    "roles", [SOME_ROLES, Roles(bookie_names=("bookie",)), Roles(admin_names=("admin",))]
)
async def test_in_clear_nobody_has_a_role_where_names_count(
    roles: Roles, frame: bytes, tmp_path: Path
) -> None:
    async with serving(tmp_path, is_only=False, roles=roles) as secured:
        peer = await secured.peer()
        assert await peer.ask(frame) is None


@each_carrier
async def test_who_has_no_name_is_no_client_where_only_others_are_named(
    carrier: str, tmp_path: Path
) -> None:
    async with serving(tmp_path, roles=Roles(bookie_names=("bookie",))) as secured:
        nameless = secured.authority.files_of_names("odd", [])
        client = secured.client(carrier, nameless, IMPATIENT)
        assert await write(client, encoded_section([b"secret"], 0)) is Status.UNREACHABLE
        assert await secured.client(carrier, secured.authority.files("anybody")).info()


@each_carrier
@pytest.mark.parametrize(
    "name",
    ["Doe, John", "Jörg", "task+1", 'a"b', "a\\", "#1", " a ", "a;b", "a=b", "CN=a", "<a>", "日本"],
)
async def test_a_name_is_what_stands_in_the_certificate_whatever_its_letters(
    carrier: str, name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path, roles=Roles(client_names=(name,))) as secured:
        assert await secured.client(carrier, secured.authority.files_of_names("odd", [name])).info()
        other = secured.authority.files_of_names("other", [f"{name}x"])
        assert await secured.client(carrier, other, IMPATIENT).info() is None
    assert all(f"name={name + 'x'!r}" in line for line in audited(caplog))
    assert audited(caplog)
