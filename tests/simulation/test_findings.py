"""What simulated clusters found, as the smallest test that shows it; the seeds are pinned in
:mod:`tests.simulation.test_world`.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bookkeeper_metadata.model import Fragment
from spark_bookkeeper.ledger.errors import EntryUnreadableError
from spark_bookkeeper.ledger.fetch import Fetched, FragmentFetcher
from tests.doubles.cluster import running_cluster
from tests.patience import seconds


class EndsMeanwhile:
    """The first fetch finds no replica, and when it says so the ledger has moved and is closed."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.meanwhile = asyncio.Event()
        self._fetch = FragmentFetcher.fetch_some
        self._is_first = True
        patch.setattr(
            FragmentFetcher, "fetch_some", lambda *asked, **how: self.fetch(*asked, **how)
        )
        self.ended = asyncio.Event()

    async def fetch(
        self, fetcher: FragmentFetcher, fragment: Fragment, wanted: range, turn: int, **how: int
    ) -> Fetched:
        if not self._is_first:
            return await self._fetch(
                fetcher, fragment, wanted, turn, enough_bytes=how["enough_bytes"]
            )
        self._is_first = False
        self.meanwhile.set()
        await self.ended.wait()
        raise EntryUnreadableError(0, wanted[0], ())


@pytest.mark.slow
@pytest.mark.parametrize("way", ["tail", "last add confirmed"])
def test_a_reader_that_learns_of_the_end_in_the_middle_of_a_read_reads_to_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """A fetch that fails reads the metadata again, and so may learn that the ledger is closed.

    What lies between the LAC so far and that end has not been returned yet.
    """

    async def main() -> tuple[list[int], int]:
        async with asyncio.timeout(seconds(30)), running_cluster(tmp_path, bookies=4) as cluster:
            writer = await cluster.client(1).create_ledger()
            for payload in (b"0", b"1", b"2"):  # each carries the LAC of the one before
                await writer.append(payload)
            reader = await cluster.client(2).open_ledger(writer.ledger_id)
            ends = EndsMeanwhile(monkeypatch)

            async def end() -> None:
                await ends.meanwhile.wait()
                cluster.faults[writer.metadata.last_fragment.ensemble[0]].is_dead = True
                await writer.append_many([b"3", b"4", b"5"])
                await writer.append(b"6")
                await writer.close()
                ends.ended.set()

            ending = asyncio.create_task(end(), name="end")
            if way == "tail":
                found = [entry.entry_id async for entry in reader.tail(0)]
            else:
                found = [e.entry_id async for e in reader.read(0, reader.last_add_confirmed)]
            await ending
            return found, await reader.read_last_add_confirmed()

    found, last = asyncio.run(main())

    assert last == 6
    assert found == (list(range(7)) if way == "tail" else list(range(len(found))))
