"""A log's age costs its writers nothing: operations, bytes and node sizes stay within bounds."""

from __future__ import annotations

from dataclasses import replace
from statistics import mean

import pytest

from bookkeeper_metadata.errors import MetadataCorruptError
from bookkeeper_metadata.store.memory_tree import MemoryTree
from spark_bookkeeper.log.format.epoch import Job
from spark_bookkeeper.log.format.serde import encode_chunk
from spark_bookkeeper.log.rules import chunks
from tests.doubles.stores import Script, ScriptedStore
from tests.spark_bookkeeper.log.world import LogWorld, shrink_chunks


def largest_node(tree: MemoryTree, path: str) -> int:
    """Bytes of the largest value at or below ``path``."""
    node = tree.node(path, 0)
    own = len(node.value) if node is not None else 0
    return max([own, *(largest_node(tree, f"{path}/{n}") for n in tree.children(path) or [])])


@pytest.mark.slow
async def test_a_small_commit_costs_no_more_after_many(
    world: LogWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    shrink_chunks(monkeypatch, inline=256, chunk=1 << 10, refs=8, fold=4)
    script = Script()
    store = ScriptedStore(world.tree, fault=script)
    session = world.session(store)
    costs = []
    for at in range(1_000):
        messages = await world.plan_and_write(Job.of_batch(f"b-{at}"), 1)
        store.sent_bytes = 0
        script.seen.clear()
        summary = await session.commit(messages)
        operations = sum(each in ("get", "create", "multi") for each, _ in script.seen)
        costs.append((operations, store.sent_bytes))
        await world.logs.sweeper.after_commit(summary)

    # Inline ranges come and go; past the first spill a commit is the same at any age.
    early, late = costs[100:300], costs[-200:]
    assert max(operations for operations, _ in costs) <= 5
    assert mean(size for _, size in late) <= 1.5 * mean(size for _, size in early)
    assert max(size for _, size in late) <= 1.5 * max(size for _, size in early)
    assert max(ref.level for ref in (await world.head()).chunks) >= 2


@pytest.mark.slow
async def test_a_small_commit_rewrites_few_of_the_ranges_before_it(world: LogWorld) -> None:
    """Each range in the head is parsed and encoded by every commit: 300 of them cost 20 ms."""
    inline = []
    for at in range(400):
        await world.append_many(1, columns=8, name=f"b-{at}")
        inline.append(len((await world.head()).ranges))

    assert 10 < max(inline) < 50


@pytest.mark.slow
async def test_no_node_of_a_log_is_larger_than_a_chunk(world: LogWorld) -> None:
    root = world.nodes().tree.root

    await world.append_many(10_000, columns=8)
    await world.append_many(20, columns=8, name="inline")
    appended = largest_node(world.tree, root)
    await world.append(Job.of_batch("over"), is_overwrite=True)

    assert 200 << 10 < appended <= chunks.CHUNK_BYTES_MAX == 256 << 10
    assert largest_node(world.tree, root) <= chunks.CHUNK_BYTES_MAX


async def test_a_chunk_that_holds_other_rows_than_its_reference_says_is_an_error(
    world: LogWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that had lost a range gave fewer rows, one that named itself was read for ever."""
    shrink_chunks(monkeypatch, inline=256, chunk=1 << 10, refs=4, fold=2)
    for at in range(12):
        await world.append_many(8, name=f"many-{at}")
    index = next(ref for ref in (await world.head()).chunks if ref.level > 0)
    path = world.nodes().tree.chunk(index.name)
    chunk = await world.nodes().chunk(index)

    lost, circle = replace(chunk, chunks=chunk.chunks[:-1]), replace(chunk, chunks=(index,))
    for version, damaged in enumerate((lost, circle)):
        await world.store.put(path, encode_chunk(damaged), version)
        with pytest.raises(MetadataCorruptError, match=path):
            await world.view().ranges()
        with pytest.raises(MetadataCorruptError, match=path):
            await world.view().row_at_time(0)
