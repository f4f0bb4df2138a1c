"""Asking for the LAC: proof counts, a hint counts as far as it can be true, silence counts for nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bookie_server.wire.digest import Crc32cDigest
from bookie_server.wire.messages import ReadLacReply, Status
from bookie_server.wire.record import encode_lac_packet
from spark_bookkeeper.ledger.errors import EntryUnreadableError
from spark_bookkeeper.ledger.last_confirmed import LacEvidence, believable_claim, lac_evidence
from tests.doubles.records import records
from tests.doubles.waits import until
from tests.spark_bookkeeper.ledger.scene import Scene

DIGEST = Crc32cDigest()
LEDGER = 7


def entry(entry_id: int, lac: int, ledger_id: int = LEDGER, count: int = 1) -> bytes:
    return records([b"x"] * count, entry_id, ledger_id=ledger_id, lac=lac)


def packet(lac: int, ledger_id: int = LEDGER) -> bytes:
    return encode_lac_packet(DIGEST, ledger_id, lac)


def flipped(part: bytes) -> bytes:
    return part[:-1] + bytes([part[-1] ^ 1])


UNKNOWN = LacEvidence(Status.UNKNOWN)


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (ReadLacReply(Status.OK, entry(9, 8)), LacEvidence(Status.OK, 8, -1, 9)),
        (ReadLacReply(Status.OK, entry(9, 8), packet(9)), LacEvidence(Status.OK, 8, 9, 9)),
        (ReadLacReply(Status.OK, None, packet(9)), LacEvidence(Status.OK, -1, 9, -1)),
        # A packet that does not verify is no packet; the entry is proof all the same.
        (
            ReadLacReply(Status.OK, entry(9, 8), flipped(packet(9))),
            LacEvidence(Status.OK, 8, -1, 9),
        ),
        (ReadLacReply(Status.OK, entry(9, 8), packet(9, 8)), LacEvidence(Status.OK, 8, -1, 9)),
        # An entry that does not verify discredits whatever came with it.
        (ReadLacReply(Status.OK, flipped(entry(9, 8)), packet(9)), UNKNOWN),
        # As Apache's re-replication packages it.
        (ReadLacReply(Status.OK, entry(9, 9)), LacEvidence(Status.OK, -1, 9, -1)),
        (ReadLacReply(Status.OK, entry(9, 12), packet(11)), LacEvidence(Status.OK, -1, 12, -1)),
        (ReadLacReply(Status.OK, entry(9, 9), packet(11)), LacEvidence(Status.OK, -1, 11, -1)),
        (ReadLacReply(Status.OK, entry(9, -2)), UNKNOWN),
        (ReadLacReply(Status.OK, entry(9, 8, ledger_id=8)), UNKNOWN),
        (ReadLacReply(Status.OK, entry(9, 8, count=2)), UNKNOWN),
        (ReadLacReply(Status.OK, b"no record"), UNKNOWN),
        (ReadLacReply(Status.NO_LEDGER, entry(9, 8)), LacEvidence(Status.NO_LEDGER)),
        (ReadLacReply(Status.UNREACHABLE), LacEvidence(Status.UNREACHABLE)),
    ],
)
def test_an_answer_is_worth_what_of_it_verifies(reply: ReadLacReply, expected: LacEvidence) -> None:
    assert lac_evidence(reply, LEDGER, DIGEST) == expected


@pytest.mark.parametrize(
    ("heard", "believed"),
    [
        ([LacEvidence(Status.OK, 3, 4, 4)], 4),
        ([LacEvidence(Status.OK, 3, 5, 4)], -1),
        ([LacEvidence(Status.OK, -1, 4, -1), LacEvidence(Status.OK, 3, -1, 4)], 4),
        ([LacEvidence(Status.OK, 3, 2**62, 4), LacEvidence(Status.OK, 3, 4, 4)], 4),
        ([LacEvidence(Status.UNREACHABLE)], -1),
    ],
)
def test_a_hint_is_believed_as_far_as_entries_reach(
    heard: list[LacEvidence], believed: int
) -> None:
    assert believable_claim(heard) == believed


@pytest.mark.parametrize("away", [(0,), (1,), (2,), (0, 1), (0, 1, 2)], ids=str)
async def test_the_lac_is_known_while_a_coverage_answers(
    scene: Scene, away: tuple[int, ...]
) -> None:
    for _ in range(4):
        await scene.writer.append(b"x")
    scene.fail(*away)
    opening = scene.open()

    if len(away) == 1:
        assert (await opening).last_add_confirmed == 2
    else:
        with pytest.raises(EntryUnreadableError, match="UNREACHABLE"):
            await opening
    scene.cluster.set_faults(is_dead=False)
    await scene.writer.close()


def damaged(reply: ReadLacReply) -> ReadLacReply:
    return ReadLacReply(reply.status, flipped(reply.last_entry or b"?"), reply.explicit_lac)


def beyond(reply: ReadLacReply) -> ReadLacReply:
    return ReadLacReply(reply.status, reply.last_entry, packet(2**40, ledger_id=0))


@pytest.mark.parametrize(("alter", "is_sure"), [(damaged, False), (beyond, True)])
async def test_two_bookies_that_lie_can_keep_the_lac_back_but_never_raise_it(
    scene: Scene, alter: Callable[[ReadLacReply], ReadLacReply], is_sure: bool
) -> None:
    for _ in range(4):
        await scene.writer.append(b"x")
    # Whoever has nothing yet says so, and there is nothing in that to alter.
    await until(lambda: len(scene.cluster.copies(scene.ledger_id, 3)) == 3)
    scene.cluster.set_faults(*scene.ensemble[:2], alter_lac=alter)
    opening = scene.open()

    if is_sure:
        assert (await opening).last_add_confirmed == 2
        recovered = await scene.recover(3)
        assert recovered.last_add_confirmed == 3
    else:
        with pytest.raises(EntryUnreadableError, match="UNKNOWN"):
            await opening
