"""What a mark and its folder cost in requests, and what lies around them."""

from __future__ import annotations

from dataclasses import replace

from bookkeeper_metadata.paths import Paths
from bookkeeper_metadata.store.memory import MemoryStore
from bookkeeper_metadata.underreplication import Mark
from tests.doubles.stores import Script
from tests.metadata.test_underreplication import ROOT, marked, over, store

__all__ = ["store"]


async def test_a_mark_beside_others_is_made_and_cleared_by_one_request_each(
    store: MemoryStore,
) -> None:
    """A lost bookie's ledgers are thousands, and most of what healing small ones costs is requests."""
    await over(store).mark(7, ["b0:3181"], now_ms=1)
    script = Script()
    marks = over(MemoryStore(store.tree, fault=script))

    mark = await marks.mark(8, ["b0:3181", "b0:3181"], now_ms=1)
    assert mark == await over(store).read(8) == Mark(("b0:3181",), 1, 0)
    assert await marks.clear(8, mark)

    assert [operation for operation, _ in script.seen] == ["multi", "sync", "get", "multi"]
    around = Paths(ROOT).mark(8).rsplit("/", 2)[0]
    assert await store.children(around) == ["0007"]
    await marks.delete_empty_folders([8])
    assert await marked(marks) == [7]


async def test_a_mark_is_made_in_a_folder_that_was_left_and_cleared_beside_what_lies_there(
    store: MemoryStore,
) -> None:
    """Apache's workers leave folders behind when they end between two requests."""
    folder = Paths(ROOT).mark(7).rpartition("/")[0]
    await store.create(f"{folder}/something", b"", make_parents=True)
    marks = over(store)

    mark = await marks.mark(7, ["b0:3181"], now_ms=1)

    assert await marked(marks) == [7]
    assert not await marks.clear(7, replace(mark, version=mark.version + 1))
    assert await marks.clear(7, mark)
    assert await marked(marks) == []
    assert await store.children(folder) == ["something"]
