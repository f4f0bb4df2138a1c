"""What docs/tls.md says is done here, block by block: certificates, bookies, clients, Spark's options."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from bookie_server.settings import BookieSettings
from spark_bookkeeper import BookKeeper, LocalCluster
from spark_bookkeeper.datasource.options.client import client_settings
from spark_bookkeeper.datasource.options.parse import parse_write_options
from tests.patience import seconds
from tests.sources import REPOSITORY

pytestmark = pytest.mark.integration

ON_THE_PAGE = "/etc/bookkeeper"
URI_ON_THE_PAGE = "zk+hierarchical://127.0.0.1:2181/ledgers"


def blocks(language: str) -> list[str]:
    text = (REPOSITORY / "docs" / "tls.md").read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def test_the_page_leads_to_a_cluster_behind_tls(tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl here, with which the page makes certificates")
    (script,) = blocks("sh")
    subprocess.run(["sh", "-eu", "-c", script], cwd=tmp_path, check=True, timeout=seconds(120))

    (text,) = blocks("toml")
    whole = tomllib.loads(text.replace(ON_THE_PAGE, str(tmp_path)))
    assert BookieSettings(**whole).registered_id == "bookie-1", "it is all that a bookie needs"
    # A local cluster has places of its own.
    settings = {name: value for name, value in whole.items() if name.startswith("tls_")}
    with LocalCluster(3, bookie_settings=settings) as cluster:
        client, spark = (
            each.replace(ON_THE_PAGE, str(tmp_path)).replace(
                URI_ON_THE_PAGE, cluster.metadata_service_uri
            )
            for each in blocks("python")
        )
        names: dict[str, object] = {}
        exec(client, names)
        bk = names["bk"]
        assert isinstance(bk, BookKeeper)
        with bk, bk.create_ledger() as writer:
            assert writer.append(b"as the page says") == 0

        exec(spark[: spark.index("df.write")], names)
        options = names["secured"]
        assert isinstance(options, dict)
        cluster_and_log = {"metadataServiceUri": cluster.metadata_service_uri, "log": "orders"}
        parsed = parse_write_options({**options, **cluster_and_log}, {})
        connection = client_settings(parsed.client_settings).connection
        assert connection.tls_trust_path == str(tmp_path / "trust.pem")
        assert connection.tls_certificate_path == str(tmp_path / "task.pem")
        assert connection.tls_key_path == str(tmp_path / "task.key")
