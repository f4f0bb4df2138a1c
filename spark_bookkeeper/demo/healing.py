"""A bookie is lost for good, and the cluster heals: what it held is copied to others, and then another may die.

Auto-recovery is the process that an operator would run. What it came to is told by the metadata, which names the
lost bookie no more, by every replica of every entry, which is read and compared, and by a read without
one more bookie.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
import urllib.request
from random import SystemRandom
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from bookkeeper_metadata.store.connect import connect
from bookkeeper_metadata.underreplication import Underreplication
from spark_bookkeeper import BookKeeper
from spark_bookkeeper.demo.report import Report
from spark_bookkeeper.local.auto_recovery import LocalAutoRecovery
from spark_bookkeeper.local.bookie import LocalBookie
from spark_bookkeeper.local.cluster import LocalCluster
from spark_bookkeeper.local.environment import child_environment

WAIT_TIMEOUT_S = 600.0
_POLL_INTERVAL_S = 0.5
_COPIED = "replication_worker_NUM_BYTES_WRITTEN"


def begin_healing(cluster: LocalCluster, report: Report) -> LocalAutoRecovery:
    """Add a bookie that may take the place of another, and start auto-recovery."""
    with report.step("add a bookie, and start auto-recovery"):
        cluster.add_bookie()
        return cluster.start_auto_recovery(lost_bookie_delay_ms=0)


def wait_until_healed(
    cluster: LocalCluster, lost: LocalBookie, healer: LocalAutoRecovery, report: Report
) -> None:
    """Wait until no ledger names the lost bookie, and none is marked for want of a copy.

    Raises:
        LocalStartError: auto-recovery ended, or did not come to an end in ten minutes.
    """
    uri = cluster.metadata_service_uri
    with BookKeeper(uri) as client, report.step("heal: every copy is somewhere else") as step:
        names = _naming(client, lost)
        deadline_s, pause = time.monotonic() + WAIT_TIMEOUT_S, threading.Event()
        while _naming(client, lost) or asyncio.run(_list_marked(uri)):
            if not healer.is_running:
                raise healer.start_error("it ended")
            if time.monotonic() > deadline_s:
                raise healer.start_error(f"ledgers still lack copies after {WAIT_TIMEOUT_S:.0f} s")
            pause.wait(_POLL_INTERVAL_S)
        step.size_bytes = int(_metric(healer, _COPIED))
        step.note = f"{len(names)} ledgers named {lost.bookie_id}, now none does"


def verify_everything(cluster: LocalCluster, report: Report) -> None:
    """Read every replica of every entry of every ledger, as an operator would."""
    arguments = ("ledgers", "verify", "--all", "--json", "--metadata-service-uri")
    command = [sys.executable, "-m", "spark_bookkeeper.cli", *arguments]
    with report.step("read every replica of every entry") as step:
        # A process of its own: gRPC serves one event loop of a process well.
        done = subprocess.run(
            [*command, cluster.metadata_service_uri],
            env=child_environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        ledgers: list[dict[str, Any]] = json.loads(done.stdout)["ledgers"] if done.stdout else []
        entries = sum(each["entries"] for each in ledgers)
        step.note = f"{len(ledgers)} ledgers, {entries:,} entries"
    outcome = done.returncode, [each for each in ledgers if each["copies_missing"]]
    report.compare("copies that are missing or differ", (0, []), outcome)


def _naming(client: BookKeeper, lost: LocalBookie) -> list[int]:
    return [
        ledger_id
        for ledger_id in client.list_ledgers()
        if lost.bookie_id in client.ledger_metadata(ledger_id).bookie_ids
    ]


async def _list_marked(uri: str) -> list[int]:
    store, root = await connect(uri)
    async with store:
        marks = Underreplication(store, root, random=SystemRandom())
        return [each async for each in marks.list_marked_ledgers()]


def _metric(healer: LocalAutoRecovery, name: str) -> float:
    with urllib.request.urlopen(f"{healer.http_address}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    samples = (each for family in text_string_to_metric_families(text) for each in family.samples)
    return next(each.value for each in samples if each.name == name)
