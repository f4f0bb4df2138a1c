"""Tailing: every confirmed entry once, in order, until the ledger's end (D6, D8)."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.spark_bookkeeper.ledger.harness import running_cluster


def test_a_tail_sees_what_is_written_and_ends_with_the_ledger(tmp_path: Path) -> None:
    async def main() -> None:
        async with running_cluster(tmp_path) as cluster:
            writer = await cluster.client().create_ledger()
            reader = await cluster.client(2).open_ledger(writer.ledger_id)
            seen: list[bytes] = []

            async def follow() -> None:
                async for entry in reader.tail(0):
                    seen.append(bytes(entry.payload))

            following = asyncio.create_task(follow())
            for number in range(20):
                await writer.append(b"%d" % number)
            while len(seen) < 19:
                await asyncio.sleep(0)
            await writer.close()
            async with asyncio.timeout(5):
                await following

            assert seen == [b"%d" % number for number in range(20)]

    asyncio.run(main())
