"""The page of a cluster in a real browser: what a person sees, and that it keeps up with the cluster."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from bookkeeper_metadata.ledgers import LedgerStore
from bookkeeper_metadata.model import LedgerMetadata
from bookkeeper_metadata.store.connect import connect
from spark_bookkeeper import BookKeeper, LocalCluster
from tests.integration.admin_page import admin_page
from tests.integration.browser import BROWSER, DRIVER, Browser, browser
from tests.integration.command_line import CommandLine
from tests.integration.processes import end_session
from tests.patience import Deadline

pytestmark = [
    pytest.mark.integration,
    pytest.mark.full,
    pytest.mark.skipif(
        not (BROWSER and DRIVER), reason="needs Debian's chromium and chromium-driver"
    ),
]

EVIL = "<img src=x onerror=\"document.body.id='taken'\">"


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(4, restart_bookies=False) as running:
        yield running


@pytest.fixture(scope="module")
def page(cluster: LocalCluster) -> Iterator[Browser]:
    with admin_page(cluster.metadata_service_uri) as served, browser() as session:
        session.open(served.url)
        yield session
        assert session.complaints() == []


def write_metadata(uri: str, ledger_id: int, custom: dict[str, bytes]) -> None:
    """As any client of ZooKeeper may."""

    def changed(metadata: LedgerMetadata) -> LedgerMetadata:
        return replace(metadata, custom_metadata=custom)

    async def write() -> None:
        store, root = await connect(uri)
        async with store:
            await LedgerStore(store, root, random=Random(0)).update(ledger_id, changed)

    asyncio.run(write())


def test_a_person_sees_the_cluster_and_what_becomes_of_it(
    page: Browser,
    bookkeeper: CommandLine,
    bk: BookKeeper,
    cluster: LocalCluster,
    tmp_path: Path,
) -> None:
    page.wait_for(lambda: page.text("#bookies").count("writable") == 4, "four bookies")
    assert "no auditor is elected" in page.text("#healing")

    # What comes is shown without a click.
    bookkeeper("logs", "append", "orders", stdin=b"0\n1\n2\n")
    page.wait_for(lambda: "orders" in page.text("#logs"), "a new log")
    with bk.create_ledger() as writer:
        writer.append_many([b"x" * 1000] * 50)
        lost = next(
            each
            for each in cluster.bookies
            if each.bookie_id in writer.metadata.last_fragment.ensemble
        )
        lost.kill()
        waited = Deadline(60)
        while len(writer.metadata.fragments) == 1:
            assert not waited.has_passed
            writer.append_many([b"x" * 1000] * 50)
    ledger_id = writer.ledger_id
    end_session(cluster.metadata_service_uri, lost.bookie_id)
    row = f'[data-bookie="{lost.bookie_id}"]'
    page.wait_for(lambda: "away" in page.text(row), "a bookie that is away")
    page.wait_for(
        lambda: lost.bookie_id in page.text(f'[data-ledger="{ledger_id}"]'), "copies that are away"
    )

    # A ledger is drawn as its fragments: a box for each, and for each place of its ensemble.
    page.click(f'[data-ledger="{ledger_id}"] button')
    boxes = "return [...document.querySelectorAll('#ledger rect')].map((e) => e.textContent)"
    page.wait_for(lambda: len(page.run(boxes)) == 6, "six boxes")
    (gone,) = [each for each in page.run(boxes) if each.startswith(lost.bookie_id)]
    assert gone.startswith(f"{lost.bookie_id}: entries 0 to ")
    assert gone.endswith(", away")
    page.click('[data-log="orders"] button')
    ranges = "return [...document.querySelectorAll('#log rect')].map((e) => e.textContent)"
    page.wait_for(lambda: any("rows 0 to 2" in each for each in page.run(ranges)), "a range")
    page.screenshot(tmp_path / "away.png")

    # It heals, and that is seen.
    healer = cluster.start_auto_recovery(lost_bookie_delay_ms=0)
    page.wait_for(lambda: "no ledger is marked" in page.text("#healing"), "nothing marked")
    page.wait_for(lambda: "the auditor is" in page.text("#healing"), "an auditor")
    page.wait_for(
        lambda: lost.bookie_id not in page.text(f'[data-ledger="{ledger_id}"]'), "all copies there"
    )
    rates = 'return [...document.querySelectorAll("#bookies td.number")].map((e) => e.innerText)'
    page.wait_for(lambda: any(each.endswith("B/s") for each in page.run(rates)), "rates")
    page.screenshot(tmp_path / "healed.png")
    healer.stop()


def test_what_strangers_write_into_metadata_is_text(
    page: Browser, bk: BookKeeper, cluster: LocalCluster
) -> None:
    with bk.create_ledger(custom_metadata={"a": b"b"}) as writer:
        writer.append(b"x")
    write_metadata(cluster.metadata_service_uri, writer.ledger_id, {EVIL: EVIL.encode()})

    row = f'[data-ledger="{writer.ledger_id}"]'
    page.wait_for(lambda: page.text(row) != "", "the ledger")
    page.click(f"{row} button")

    page.wait_for(lambda: "onerror" in page.text("#ledger"), "its metadata as text")
    assert page.run("return document.body.id") == ""
    assert page.run("return document.querySelectorAll('img').length") == 0


def test_it_asks_nobody_but_its_own_server(page: Browser) -> None:
    asked = page.run("return performance.getEntriesByType('resource').map((each) => each.name)")
    own = page.run("return location.origin")

    assert len(asked) > 5
    assert [each for each in asked if not each.startswith(own + "/")] == []


def test_a_ledger_that_is_not_there_is_said_to_be_not_there(page: Browser) -> None:
    page.run("document.getElementById('ledger-id').value = '999999'")
    page.run("document.getElementById('find').requestSubmit()")

    page.wait_for(lambda: "no such ledger" in page.text("#ledger"), "that there is none")
    # The browser says so, too; nothing else.
    assert all("404" in each for each in page.complaints())
    page.click("#newest")


def test_a_page_whose_server_is_gone_says_so_and_keeps_what_it_showed(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    with browser() as session:
        with admin_page(cluster.metadata_service_uri) as served:
            session.open(served.url)
            session.wait_for(lambda: "as of" in session.text("#state"), "an answer")
        session.wait_for(lambda: "no answer" in session.text("#state"), "that there is no answer")
        assert "as of" in session.text("#state")
        assert cluster.bookies[1].bookie_id in session.text("#bookies")
        assert session.run("return document.getElementById('state').className") == "bad"
        assert json.dumps(session.complaints()).count("SyntaxError") == 0
