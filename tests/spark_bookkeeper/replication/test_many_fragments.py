"""What mending a ledger costs does not grow with the square of its fragments, and none of them is left out."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from bookie_server.wire.messages import EntryList
from bookkeeper_metadata.model import Fragment, LedgerMetadata
from spark_bookkeeper.replication import mending as mending_module
from spark_bookkeeper.replication.mending import LedgerMender
from tests.doubles.bookies import FaultyClient
from tests.doubles.stores import Script
from tests.spark_bookkeeper.ledger.scene import Scene, numbers
from tests.spark_bookkeeper.replication.test_mending import Meanwhile, assert_whole, lose, mend

COUNT = 24
STRIPED = pytest.mark.parametrize("quorums", [(4, 3, 3)])
SEVEN = pytest.mark.cluster(bookies=7)


async def write(scene: Scene) -> None:
    """A closed ledger with a fragment for each entry, on three of four bookies in turn."""
    await scene.writer.append_many(numbers(COUNT))
    await scene.writer.close()
    ring = scene.ensemble

    def cut_up(metadata: LedgerMetadata) -> LedgerMetadata:
        fragments = tuple(
            Fragment(at, tuple(ring[(at + place) % 4] for place in range(3))) for at in range(COUNT)
        )
        return replace(metadata, ensemble_size=3, fragments=fragments)

    await scene.change(cut_up)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each bookie was asked for a list."""
    found, list_page = Counter[str](), FaultyClient.list_page

    async def count(client: FaultyClient, ledger_id: int, first_entry: int) -> EntryList:
        found[client.bookie_id] += 1
        return await list_page(client, ledger_id, first_entry)

    monkeypatch.setattr(FaultyClient, "list_page", count)
    return found


@STRIPED
@SEVEN
async def test_a_member_is_asked_once_for_all_of_its_shares(
    scene: Scene, asked: Counter[str]
) -> None:
    await write(scene)

    assert (await mend(scene)).is_whole

    assert asked == Counter(scene.ensemble)


@STRIPED
@SEVEN
async def test_a_member_that_is_silent_is_waited_for_once_and_named_once(
    scene: Scene, asked: Counter[str]
) -> None:
    await write(scene)
    silent = scene.ensemble[0]
    scene.cluster.set_faults(silent, is_dead=True)

    mended = await mend(scene)

    assert mended.left == [f"{silent} does not know what it holds: UNREACHABLE"]
    assert asked == Counter(scene.ensemble)


@STRIPED
@SEVEN
async def test_small_shares_of_two_lost_bookies_change_the_metadata_once(
    scene: Scene, asked: Counter[str]
) -> None:
    """Most fragments have lost two members, and no bookie may take both of their places."""
    await write(scene)
    for bookie_id in scene.ensemble[:2]:
        await lose(scene, bookie_id)
    before = await scene.metadata()
    scene.cluster.store.fault = script = Script()

    mended = await mend(scene)

    assert mended.is_whole
    assert len(mended.replaced) == COUNT * 3 // 2
    assert len(script.paths("put")) == 1
    assert max(asked.values()) <= 2, "as a member, and when it has taken shares"
    await assert_whole(scene)
    after = await scene.metadata()
    for old, new in zip(before.fragments, after.fragments, strict=True):
        for member, now in zip(old.ensemble, new.ensemble, strict=True):
            assert (now == member) is (member not in scene.ensemble[:2])


@pytest.mark.parametrize("limit", ["NAMED_AT_ONCE", "WINDOW_BYTES"])
@STRIPED
@SEVEN
async def test_what_is_copied_is_named_before_it_is_too_much(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    await write(scene)
    await lose(scene, scene.ensemble[0])
    (record,) = {len(each) for each in scene.cluster.copies(scene.ledger_id, COUNT - 1).values()}
    monkeypatch.setattr(mending_module, limit, 5 if limit == "NAMED_AT_ONCE" else 5 * record - 9)
    scene.cluster.store.fault = script = Script()

    mended = await mend(scene)

    assert mended.is_whole
    assert len(mended.replaced) == COUNT * 3 // 4
    assert len(script.paths("put")) == 4
    await assert_whole(scene)


@STRIPED
@SEVEN
async def test_what_another_changed_before_the_naming_is_found_anew(scene: Scene) -> None:
    """All copies of one naming are made in vain then, and whoever has them may have dropped them since."""
    await write(scene)
    await lose(scene, scene.ensemble[0])
    context = scene.cluster.client(7).cluster
    copied: list[int] = []

    async def mend_it_too(size_bytes: int) -> None:
        copied.append(size_bytes)
        if len(copied) == 7:
            assert (await mend(scene, seed=8)).is_whole

    mended = await LedgerMender(context, Meanwhile(mend_it_too)).mend(scene.ledger_id)

    assert mended.is_whole
    assert mended.replaced == []
    await assert_whole(scene)
