"""A bookie's settings: precedence, and one error that names everything wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bookie_server.settings import BookieSettings, bookie_settings_table, load_bookie_settings
from bookkeeper_metadata.foundation.settings_sources import SettingsTable
from bookkeeper_metadata.foundation.tls.settings import TlsFiles
from spark_bookkeeper.replication.settings import auto_recovery_settings_table

DIRECTORIES = {"journal_directories": "/j", "ledger_directories": "/l"}


def test_flags_beat_environment_beats_file(tmp_path: Path) -> None:
    file = tmp_path / "bookie.toml"
    file.write_text(
        'port = 1\nhost = "127.0.0.2"\nread_threads = 7\nledger_directories = ["/a", "/b"]\n'
    )

    settings = load_bookie_settings(
        config_path=str(file),
        environment={
            "BOOKKEEPER_PORT": "2",
            "BOOKKEEPER_HOST": "127.0.0.3",
            "BOOKKEEPER_OTHER": "x",
        },
        flags={"port": "3", "host": None},
    )

    assert (settings.port, settings.host, settings.read_threads) == (3, "127.0.0.3", 7)
    assert settings.ledger_directories == ("/a", "/b")


def test_the_cluster_is_named_as_for_every_client(caplog: pytest.LogCaptureFixture) -> None:
    def uri_of(environment: dict[str, str]) -> str:
        return load_bookie_settings(environment=environment, flags={}).metadata_service_uri

    assert uri_of({"BOOKKEEPER_METADATA_URI": "zk://a/l"}) == "zk://a/l"
    assert uri_of({"BOOKKEEPER_METADATA_URI": ""}) == BookieSettings().metadata_service_uri
    assert caplog.messages == []

    assert uri_of({"BOOKKEEPER_METADATA_SERVICE_URI": "zk://b/l"}) == "zk://b/l"
    assert "BOOKKEEPER_METADATA_SERVICE_URI is now called BOOKKEEPER_METADATA_URI" in caplog.text


@pytest.mark.parametrize("host", ["0.0.0.0", "10.1.2.3", "::", "example.org"])
def test_a_host_beyond_loopback_needs_insecure(host: str) -> None:
    with pytest.raises(ValueError, match=f"BK_INSECURE.*host={host}"):
        BookieSettings(host=host)

    assert BookieSettings(host=host, insecure=True).host == host


SECURED: dict[str, Any] = {"tls_trust_path": "/t.pem", "tls_certificate_path": "/c.pem"}


def test_a_host_beyond_loopback_may_do_with_certificates_on_both_sides() -> None:
    assert BookieSettings(host="10.1.2.3", http_host="10.1.2.3", **SECURED).host == "10.1.2.3"
    with pytest.raises(ValueError, match=r"BK_INSECURE.*tls_client_authentication.*; host=10"):
        BookieSettings(host="10.1.2.3", tls_client_authentication=False, **SECURED)
    with pytest.raises(ValueError, match=r"BK_INSECURE.*tls_only, or rpc_port"):
        BookieSettings(host="10.1.2.3", tls_only=False, **SECURED)
    assert BookieSettings(host="10.1.2.3", tls_only=False, rpc_port=0, **SECURED).rpc_port == 0
    with pytest.raises(ValueError, match=r"BK_INSECURE.*tls_certificate_path.*http_host=10"):
        BookieSettings(http_host="10.1.2.3", tls_trust_path="/t.pem")


def test_roles_need_certificates_of_clients() -> None:
    with pytest.raises(ValueError, match="tls_admin_names needs certificates"):
        BookieSettings(tls_admin_names=("operator",))
    with pytest.raises(ValueError, match="tls_client_names needs certificates"):
        BookieSettings(tls_client_names=("a",), tls_client_authentication=False, **SECURED)


def test_what_it_is_told_of_tls_a_bookie_uses_towards_others_as_well() -> None:
    settings = BookieSettings(**SECURED, tls_key_path="/k.pem", tls_only=False)
    assert settings.connection.tls_files == TlsFiles("/t.pem", "/c.pem", "/k.pem")
    assert not settings.connection.tls_only
    assert settings.tls_of_http == settings.tls_files
    assert BookieSettings(tls_trust_path="/t.pem").tls_of_http is None


def test_the_variables_of_tls_are_the_same_for_every_process() -> None:
    environment = {"BOOKKEEPER_TLS_TRUST_PATH": "/t.pem", "BOOKKEEPER_TLS_ONLY": "false"}
    tables: list[SettingsTable[Any]] = [bookie_settings_table(), auto_recovery_settings_table()]
    for table in tables:
        settings = table.load(environment=environment, flags={})
        assert (settings.tls_trust_path, settings.tls_only) == ("/t.pem", False)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_loopback_needs_nothing(host: str) -> None:
    assert BookieSettings(host=host).host == host


def test_everything_wrong_is_named_at_once() -> None:
    with pytest.raises(ValueError) as caught:
        load_bookie_settings(
            environment={},
            flags={"prot": "1", "port": "70000", "read_threads": "many", "log_level": "loud"},
        )

    for part in ("unknown setting prot; did you mean port?", "port=70000", "read_threads", "loud"):
        assert part in str(caught.value)


def test_a_free_port_needs_an_id_of_its_own() -> None:
    """Its cookie was left behind for an address that nobody would have again."""
    with pytest.raises(ValueError, match=r"port 0 .* name it with --bookie-id"):
        BookieSettings(port=0)
    assert BookieSettings(port=0, bookie_id="b1").port == 0


@pytest.mark.parametrize("setting", ["socket_port", "rpc_port"])
def test_every_carrier_needs_a_port_of_its_own(setting: str) -> None:
    ports: dict[str, Any] = {"port": 4000, setting: 4000}
    with pytest.raises(ValueError, match=f"0 for none; port=4000 .*{setting}=4000"):
        BookieSettings(**ports)
    assert BookieSettings(port=0, socket_port=0, rpc_port=0, bookie_id="b1").port == 0


def test_directories_must_be_given_and_differ() -> None:
    with pytest.raises(ValueError, match="journal_directories"):
        BookieSettings().storage  # noqa: B018
    both = {"journal_directories": ("/x",), "ledger_directories": ("/x",)}
    with pytest.raises(ValueError, match="must not share"):
        BookieSettings(**both).storage  # type: ignore[arg-type]  # noqa: B018


def test_every_setting_explains_itself() -> None:
    for setting in bookie_settings_table().settings:
        assert setting.help, setting.name
        assert setting.flag.startswith("--")


def test_what_is_given_has_no_defaults_and_the_same_defects(tmp_path: Path) -> None:
    file = tmp_path / "bookie.toml"
    file.write_text('host = "127.0.0.2"\nport = 1\n')
    table = bookie_settings_table()

    given = table.given(config_path=str(file), environment={"BOOKKEEPER_PORT": "2"})
    with pytest.raises(ValueError, match="whole number; port='x'"):
        table.given(config_path=None, environment={"BOOKKEEPER_PORT": "x"})

    assert given == {"host": "127.0.0.2", "port": 2}
