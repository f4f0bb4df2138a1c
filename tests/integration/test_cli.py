"""The command line as its users meet it: results, exit codes, one-line errors."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import struct
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import pytest

from bookkeeper_metadata.errors import ClusterNotInitializedError
from bookkeeper_metadata.store.connect import connect
from spark_bookkeeper import BookKeeper, LocalCluster, aio
from spark_bookkeeper.errors import BookKeeperError
from spark_bookkeeper.ledger.errors import LedgerFencedError
from spark_bookkeeper.local.environment import child_environment
from spark_bookkeeper.local.ports import free_port
from tests.integration.command_line import CommandLine
from tests.integration.processes import eventually, is_alive, processes_of
from tests.patience import seconds

pytestmark = pytest.mark.integration

COMMAND = [sys.executable, "-m", "spark_bookkeeper.cli"]


async def paths_at_the_top(uri: str) -> list[str]:
    """Every node of ZooKeeper's first level."""
    store, _ = await connect(uri)
    async with store:
        return [f"/{name}" for name in await store.children("/") or []]


def bookie_of(
    uri: str, directory: Path, port: int, stdout: IO[bytes] | int, bookie_id: str = ""
) -> subprocess.Popen[bytes]:
    """A bookie of that cluster, started by flags."""
    command = [*COMMAND, "bookie", "--port", str(port), "--bookie-id", bookie_id]
    command += ["--socket-port", str(free_port({port}))]
    command += ["--journal-directories", str(directory / "journal")]
    command += ["--ledger-directories", str(directory / "ledgers")]
    environment = {**child_environment(), "BOOKKEEPER_METADATA_URI": uri}
    return subprocess.Popen(command, env=environment, stdout=stdout, stderr=subprocess.STDOUT)


needs_cluster = [pytest.mark.zookeeper, pytest.mark.slow]


class TestWithACluster:
    pytestmark = needs_cluster

    def test_lines_appended_are_the_entries_read(self, bookkeeper: CommandLine) -> None:
        ledger_id = int(bookkeeper("ledgers", "append", stdin=b"first\n\nthird without end"))

        assert bookkeeper("ledgers", "read", ledger_id) == "first\n\nthird without end\n"
        assert bookkeeper("ledgers", "read", ledger_id, "--first", 1, "--last", 1) == "\n"
        lines = bookkeeper.lines("ledgers", "read", ledger_id, "--json")
        assert lines[2] == {"entry_id": 2, "payload": "third without end"}

    def test_length_prefixed_records_come_back_byte_for_byte(self, bookkeeper: CommandLine) -> None:
        records = [b"\x00\xff\n", b"", b"x" * 5000]
        sent = b"".join(struct.pack(">I", len(each)) + each for each in records)

        document = bookkeeper.json("ledgers", "append", "--length-prefixed", stdin=sent)

        assert document["entries"] == 3
        lines = bookkeeper.lines("ledgers", "read", document["ledger_id"], "--json")
        assert lines[0]["payload"] == "0x00ff0a"
        assert bookkeeper("ledgers", "show", document["ledger_id"]).startswith("ledger id")

    def test_a_record_cut_short_is_wrong_use(self, bookkeeper: CommandLine) -> None:
        short = struct.pack(">I", 10) + b"short"

        err = bookkeeper.refused("ledgers", "append", "--length-prefixed", code=2, stdin=short)

        assert "ends within a record" in err

    def test_a_created_ledger_is_listed_and_shown_until_deleted(
        self, bookkeeper: CommandLine
    ) -> None:
        created = bookkeeper.json("ledgers", "create", "--ledger-id", 4711, "--password", "secret")

        shown = bookkeeper.json("ledgers", "show", 4711)
        listed = bookkeeper.json("ledgers", "list")["ledgers"]
        assert created == {"ledger_id": 4711, "entries": 0}
        assert (shown["state"], shown["last_entry"], shown["length"]) == ("CLOSED", -1, 0)
        assert "secret" not in json.dumps(shown)
        assert 4711 in [each["ledger_id"] for each in listed]
        assert "4711" in bookkeeper("ledgers", "list")

        bookkeeper("ledgers", "delete", 4711, "--yes")
        err = bookkeeper.refused("ledgers", "show", 4711)
        assert err == "BK_NO_SUCH_LEDGER: no such ledger. ledger_id=4711\n"

    def test_a_tail_prints_what_is_confirmed_and_ends_when_nothing_follows(
        self, bookkeeper: CommandLine
    ) -> None:
        with BookKeeper(bookkeeper.uri) as client:
            writer = client.create_ledger()
            writer.append_many([b"a", b"b", b"\xff"])

            idle = bookkeeper("ledgers", "tail", writer.ledger_id, "--timeout", seconds(0.5))
            writer.close()

            assert idle == "a\nb\n0xff\n"
        lines = bookkeeper.lines("ledgers", "tail", writer.ledger_id, "--from", 2, "--json")
        assert lines == [{"entry_id": 2, "payload": "0xff"}]
        bookkeeper.refused("ledgers", "tail", 999)

    def test_recover_closes_what_its_writer_left_open(self, bookkeeper: CommandLine) -> None:
        with BookKeeper(bookkeeper.uri) as client:
            writer = client.create_ledger()
            writer.append_many([b"a", b"b"])

            recovered = bookkeeper.json("ledgers", "recover", writer.ledger_id)
            again = bookkeeper("ledgers", "recover", writer.ledger_id)

            with pytest.raises(LedgerFencedError):
                writer.append(b"c")
        assert recovered == {"ledger_id": writer.ledger_id, "last_entry": 1}
        assert again == f"ledger {writer.ledger_id} is closed; last entry 1\n"
        assert bookkeeper.json("ledgers", "show", writer.ledger_id)["state"] == "CLOSED"

    def test_deleting_asks_first(self, bookkeeper: CommandLine) -> None:
        bookkeeper("ledgers", "create", "--ledger-id", 4712)

        bookkeeper.refused("ledgers", "delete", 4712, stdin=b"n\n")

        assert bookkeeper.json("ledgers", "show", 4712)["ledger_id"] == 4712

    def test_a_forced_deletion_fences_the_writer(self, bookkeeper: CommandLine) -> None:
        with BookKeeper(bookkeeper.uri) as client:
            writer = client.create_ledger()
            writer.append(b"a")

            bookkeeper("ledgers", "delete", writer.ledger_id, "--force", "--yes")

            with pytest.raises(LedgerFencedError):
                writer.append(b"b")
        assert "no such ledger" in bookkeeper.refused("ledgers", "show", writer.ledger_id)

    def test_a_forced_deletion_may_go_without_the_fence(self, bookkeeper: CommandLine) -> None:
        with BookKeeper(bookkeeper.uri) as client:
            writer = client.create_ledger()
            delete = ("ledgers", "delete", writer.ledger_id, "--unfenced", "--yes")

            assert "force" in bookkeeper.refused(*delete, code=2)
            bookkeeper(*delete, "--force")

            # This is what its help says is lost.
            assert writer.append(b"a") == 0
            assert "no such ledger" in bookkeeper.refused("ledgers", "show", writer.ledger_id)

    def test_a_wrong_password_is_refused_by_name(self, bookkeeper: CommandLine) -> None:
        bookkeeper("ledgers", "create", "--ledger-id", 4713, "--password", "right")

        err = bookkeeper.refused("ledgers", "read", 4713, "--password", "wrong")

        assert err.startswith("BK_UNAUTHORIZED: ")

    def test_a_password_may_be_in_a_file(self, bookkeeper: CommandLine, tmp_path: Path) -> None:
        file = tmp_path / "password"
        # Anything but a line's end may be in one.
        file.write_bytes(b"s\xe9cret \nnot this line\n")
        given = "--password-file", file
        bookkeeper("ledgers", "create", "--ledger-id", 4714, *given)
        with BookKeeper(bookkeeper.uri) as client:
            client.open_ledger(4714, password=b"s\xe9cret ", recovery=True).close()
        bookkeeper("ledgers", "read", 4714, *given)

        both = bookkeeper.refused("ledgers", "read", 4714, *given, "--password", "x", code=2)
        assert "exclude each other" in both
        missing = bookkeeper.refused("ledgers", "read", 4714, "--password-file", "/no/file", code=2)
        assert "/no/file" in missing

        bookkeeper("logs", "append", "behind-a-password", *given, stdin=b"one\n")
        assert bookkeeper.lines("logs", "read", "behind-a-password", *given)
        assert "BK_UNAUTHORIZED" in bookkeeper.refused("logs", "read", "behind-a-password")
        bookkeeper("logs", "delete", "behind-a-password", "--yes")

    def test_debug_adds_the_traceback(self, bookkeeper: CommandLine) -> None:
        err = bookkeeper.refused("ledgers", "show", 999, "--debug")

        assert "Traceback" in err
        assert err.splitlines()[-1].startswith("BK_NO_SUCH_LEDGER: ")

    def test_the_cluster_and_its_bookies_are_described(
        self, bookkeeper: CommandLine, cluster: LocalCluster
    ) -> None:
        ids = sorted(each.bookie_id for each in cluster.bookies)

        info = bookkeeper.json("cluster", "info")
        listed = bookkeeper.json("bookies", "list")["bookies"]

        assert info["bookies_writable"] == ids
        assert info["layout"] == "hierarchical"
        assert sorted(each["bookie_id"] for each in listed) == ids
        assert all(each["writable"] and each["answers"] for each in listed)
        assert all(0 < each["disk_free_bytes"] < each["disk_total_bytes"] for each in listed)
        assert " % of " in bookkeeper("bookies", "list")
        assert ids[0] in bookkeeper("bookies", "list")
        assert info["instance_id"] in bookkeeper("cluster", "info")

    def test_a_cluster_is_initialized_once(self, bookkeeper: CommandLine) -> None:
        elsewhere = bookkeeper.at(bookkeeper.uri + "2")
        elsewhere("cluster", "init")

        assert elsewhere.refused("cluster", "init").startswith("BK_")
        assert elsewhere.json("cluster", "info")["bookies_writable"] == []

    def test_ids_that_were_used_before_are_skipped_and_a_mistake_is_refused(
        self, bookkeeper: CommandLine
    ) -> None:
        elsewhere = bookkeeper.at(bookkeeper.uri + "-skipping")
        elsewhere("cluster", "init")

        assert elsewhere.json("cluster", "skip-ids", "--past", 9) == {"past": 9, "skipped": 10}
        mistaken = elsewhere.refused("cluster", "skip-ids", "--past", 10**9, code=2)
        assert mistaken.startswith("BK_USAGE: the next ledger id is 11:")

    @pytest.mark.parametrize(
        "arguments",
        [
            "cluster info", "cluster skip-ids --past 1", "bookies list", "ledgers list", "ledgers show 1", "ledgers create",
            "ledgers append", "ledgers read 1", "ledgers tail 1", "ledgers recover 1",
            "ledgers verify 1", "ledgers delete 1 --yes", "logs list", "logs show x", "logs read x",
            "logs tail x", "logs append x", "logs truncate x --before 1 --yes", "logs recover x",
            "logs delete x --yes", "logs gc", "logs gc x", "logs consumers list x",
            "logs consumers forget x c --yes", "logs txns list x", "logs txns forget x a --yes",
        ],
    )  # fmt: skip
    def test_at_a_path_without_a_cluster_every_command_says_so_and_makes_nothing(
        self, bookkeeper: CommandLine, arguments: str
    ) -> None:
        elsewhere = bookkeeper.at(bookkeeper.uri + "3")

        code, out, err = elsewhere.outcome(*arguments.split(), stdin=b"a line\n")

        assert (code, out) == (1, "")
        assert err == (
            "BK_NOT_INITIALIZED: no BookKeeper cluster at this path of ZooKeeper; check the path in "
            "the metadata service URI, or run `bookkeeper cluster init` to make one here. "
            "root=/ledgers3\n"
        )
        assert "/ledgers3-logs" not in asyncio.run(paths_at_the_top(bookkeeper.uri))

    def test_at_a_path_without_a_cluster_no_client_opens_and_no_bookie_starts(
        self, bookkeeper: CommandLine, tmp_path: Path
    ) -> None:
        uri = bookkeeper.uri + "3"

        async def use() -> None:
            async with aio.BookKeeper(uri):
                raise AssertionError("it opened")

        with BookKeeper(uri) as client, pytest.raises(ClusterNotInitializedError):
            client.list_logs()
        with pytest.raises(ClusterNotInitializedError):
            asyncio.run(use())
        with bookie_of(uri, tmp_path, 0, subprocess.PIPE, "lost") as bookie:
            out, _ = bookie.communicate(timeout=60)
        assert bookie.returncode == 1
        assert b"BK_NOT_INITIALIZED" in out
        assert list(tmp_path.iterdir()) == []

    def test_a_bookie_that_cannot_have_its_place_names_it(
        self, cluster: LocalCluster, tmp_path: Path
    ) -> None:
        """A bare traceback for the port, "[Errno 11]" for the directory."""
        other = cluster.bookies[0]
        for directory, port, named in (
            (tmp_path, other.port, f"127.0.0.1:{other.port}"),
            (other.directory, 0, f"in use by another process: '{other.directory / 'journal'}"),
        ):
            with bookie_of(
                cluster.metadata_service_uri, directory, port, subprocess.PIPE, other.bookie_id
            ) as bookie:
                out = bookie.communicate(timeout=seconds(60))[0].decode()
            assert bookie.returncode == 1
            assert named in out
            assert "Traceback" not in out

    def test_a_cluster_without_logs_lists_none(self, bookkeeper: CommandLine) -> None:
        assert bookkeeper.json("logs", "list") == {"logs": []}

        assert bookkeeper.refused("logs", "show", "missing").startswith("BK_NO_SUCH_LOG: ")

    def test_a_bookie_given_by_flags_joins_and_leaves(
        self, bookkeeper: CommandLine, tmp_path: Path
    ) -> None:
        port = free_port(set())
        with (
            (tmp_path / "log").open("wb") as log,
            bookie_of(bookkeeper.uri, tmp_path, port, stdout=log) as bookie,
        ):
            joined = eventually(
                lambda: f"127.0.0.1:{port}" in bookkeeper("bookies", "list"), timeout_s=30
            )
            bookie.send_signal(signal.SIGTERM)
            code = bookie.wait(seconds(30))

        assert joined, (tmp_path / "log").read_text()
        assert code == 0
        known = {each["bookie_id"]: each for each in bookkeeper.json("bookies", "list")["bookies"]}
        assert known[f"127.0.0.1:{port}"]["state"] == "away"


class TestLocal:
    pytestmark = needs_cluster

    @staticmethod
    def started(directory: Path) -> tuple[subprocess.Popen[str], dict[str, Any]]:
        command = [*COMMAND, "local", "--bookies", "1", "--dir", str(directory), "--json"]
        local = subprocess.Popen(
            command,
            env=child_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert local.stdout is not None
        text = ""
        while line := local.stdout.readline():
            text += line
            if line == "}\n":
                return local, json.loads(text)
        local.communicate()
        raise AssertionError(f"it ended before it said what runs: {text}")

    def test_a_bookie_that_is_killed_is_started_again(self, tmp_path: Path) -> None:
        local, document = self.started(tmp_path)
        (bookie,) = document["bookies"]
        os.kill(bookie["pid"], signal.SIGKILL)

        def is_back() -> bool:
            with BookKeeper(document["metadata_service_uri"]) as bk, suppress(BookKeeperError):
                bk.create_ledger(ensemble_size=1, write_quorum=1, ack_quorum=1).append(b"x")
                return True
            return False

        assert eventually(is_back, timeout_s=60)
        local.send_signal(signal.SIGTERM)
        _, said = local.communicate(timeout=seconds(30))
        assert f"bookie_id={bookie['bookie_id']} exit_code=-9" in said

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_ctrl_c_and_sigterm_stop_everything_and_count_as_done(
        self, tmp_path: Path, number: signal.Signals
    ) -> None:
        local, document = self.started(tmp_path)
        bookie = document["bookies"][0]

        local.send_signal(number)
        local.communicate(timeout=seconds(30))

        assert local.returncode == 0
        assert not is_alive(bookie["pid"])
        assert processes_of(tmp_path) == []

    def test_sigkill_leaves_no_process_either(self, tmp_path: Path) -> None:
        local, document = self.started(tmp_path)

        local.kill()
        local.communicate()

        assert document["metadata_service_uri"].startswith("zk+hierarchical://127.0.0.1:")
        assert eventually(lambda: processes_of(tmp_path) == [])
