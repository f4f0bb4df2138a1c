"""A ledger that somebody deletes under its writer: the writer is told so, and only then."""

from __future__ import annotations

import pytest

from bookie_server.wire.messages import Status
from bookkeeper_metadata.errors import LedgerExistsError, NoSuchLedgerError
from bookkeeper_metadata.ledgers import Versioned
from spark_bookkeeper.ledger.errors import LedgerDeletedError, NotEnoughBookiesError
from tests.spark_bookkeeper.ledger.scene import Scene


@pytest.mark.cluster(bookies=3, ensemble_change_retry_ms=1, bookie_quarantine_ms=1)
async def test_a_writer_whose_bookies_are_about_to_delete_is_told_that_its_ledger_is_gone(
    scene: Scene,
) -> None:
    await scene.writer.append(b"0")
    await scene.client.cluster.ledgers.delete(scene.ledger_id)
    scene.fail(0, 1, 2, write_status=Status.LIMBO)

    with pytest.raises(LedgerDeletedError):
        await scene.writer.append(b"1")


@pytest.mark.cluster(bookies=3, ensemble_change_retry_ms=1, bookie_quarantine_ms=1)
async def test_a_session_that_lags_behind_the_creation_ends_no_writer(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new one may have reached a server that does not know the ledger yet."""
    ledgers = scene.client.cluster.ledgers
    real_read, real_sync, lags, read = ledgers.read, ledgers.sync, [True], list[bool]()

    async def lagging_read(ledger_id: int) -> Versioned:
        read.append(lags[0])
        if lags[0]:
            raise NoSuchLedgerError(ledger_id)
        return await real_read(ledger_id)

    async def sync() -> None:
        await real_sync()
        lags[0] = False

    await scene.writer.append(b"0")
    monkeypatch.setattr(ledgers, "read", lagging_read)
    monkeypatch.setattr(ledgers, "sync", sync)
    scene.fail(0, 1, 2, write_status=Status.LIMBO)
    with pytest.raises(NotEnoughBookiesError):
        await scene.writer.append(b"1")

    assert read
    assert not any(read)


@pytest.mark.cluster(bookies=3)
async def test_an_id_that_was_deleted_is_not_taken_again(scene: Scene) -> None:
    chosen = 1 << 40
    bookie = scene.cluster.bookies[scene.ensemble[1]]
    assert await bookie.delete([(chosen, chosen)]) is Status.OK

    with pytest.raises(LedgerDeletedError):
        await scene.client.create_ledger(ledger_id=chosen)
    async with await scene.client.create_ledger(ledger_id=chosen + 1) as other:
        await other.append(b"0")


async def test_an_id_whose_ledger_is_not_deleted_yet_is_not_taken_again(scene: Scene) -> None:
    """The metadata is gone, bookies find out later: a recovery read old entries as the new ledger's."""
    await scene.writer.append(b"old")
    await scene.client.cluster.ledgers.delete(scene.ledger_id)

    with pytest.raises(LedgerDeletedError):
        await scene.client.create_ledger(ledger_id=scene.ledger_id)

    with pytest.raises(NoSuchLedgerError):
        await scene.metadata()


@pytest.mark.cluster(bookies=4)
async def test_a_bookie_outside_the_new_ensemble_is_asked_as_well(scene: Scene) -> None:
    """An ensemble change would have brought it in, with its old entries."""
    old = await scene.client.create_ledger(ensemble_size=1, write_quorum=1, ack_quorum=1)
    await old.append(b"old")
    await scene.client.cluster.ledgers.delete(old.ledger_id)

    for _ in range(8):
        with pytest.raises(LedgerDeletedError):
            await scene.client.create_ledger(
                ensemble_size=1, write_quorum=1, ack_quorum=1, ledger_id=old.ledger_id
            )


async def test_an_id_whose_ledger_is_alive_is_said_to_be_taken(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once: were it deleted before the creation, that would succeed, upon its entries."""
    await scene.writer.append(b"0")

    async def create(*_: object, **__: object) -> None:
        pytest.fail("left to the creation")

    monkeypatch.setattr(scene.client.cluster.ledgers, "create", create)
    with pytest.raises(LedgerExistsError):
        await scene.client.create_ledger(ledger_id=scene.ledger_id)
