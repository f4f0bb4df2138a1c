"""Which section an answer is for: many answers at once mean what they mean one by one."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import pytest

from bookie_server.client.rpc.answering import (
    SectionsOfV2,
    SectionsOfV3,
    SentSection,
    SentSections,
)
from bookie_server.wire.codec import MalformedFrameError
from bookie_server.wire.messages import EncodedSection, Status
from bookie_server.wire.rpc import v2, v3
from bookie_server.wire.rpc.answer_runs import Answers
from bookie_server.wire.rpc.sections import EncodedAdds, encode_adds
from bookie_server.wire.rpc.statuses import RpcStatus
from tests.doubles.records import encoded_section

LEDGER = 7
KINDS: dict[int, type[SentSections]] = {v2.VERSION: SectionsOfV2, v3.VERSION: SectionsOfV3}


def striped(first_entry: int, count: int, step: int) -> tuple[EncodedSection, EncodedAdds]:
    """A bookie's share of a run, which has some of its entries."""
    ids = [first_entry + step * at for at in range(count)]
    return EncodedSection(LEDGER, ids[0], ids[-1], False, b""), EncodedAdds((), ids, range(0))


@dataclass
class Sent:
    """What was sent, as a model has it: each answer by itself."""

    section: EncodedSection
    left: set[int]
    status: RpcStatus = RpcStatus.EOK

    def refuse(self, status: RpcStatus) -> None:
        if self.status in (RpcStatus.EOK, RpcStatus.ETOOMANYREQUESTS):
            self.status = status


class Model:
    """Version 2, told in the words of the module."""

    def __init__(self) -> None:
        self.sent: list[Sent] = []

    def answer(self, entry_id: int, status: RpcStatus) -> Sent | None:
        """The section that is answered with it."""
        asked = [each for each in self.sent if entry_id in each.left]
        if status is not RpcStatus.EOK:
            for each in asked:
                each.refuse(status)
        asked[0].left.discard(entry_id)
        if asked[0].left:
            return None
        self.sent.remove(asked[0])
        return asked[0]


def sent_to(sections: SentSections, section: EncodedSection, version: int) -> EncodedAdds:
    adds = encode_adds(section, version)
    sections.expect(SentSection(section, adds), adds)
    return adds


def ten_sent(version: int) -> tuple[SentSections, int | None, int]:
    """Ten adds are on their way; by which ledger, and from which name on, they are answered."""
    sections = KINDS[version]()
    adds = sent_to(sections, encoded_section([b"x"] * 10, 5), version)
    return (sections, None, adds.numbers[0]) if adds.numbers else (sections, LEDGER, 5)


@pytest.mark.parametrize("seed", range(200))
def test_many_answers_at_once_mean_what_each_of_them_means(seed: int) -> None:
    """Sections one behind the other, sent twice, or shares of one run; answers in order, mixed, refused."""
    random, model, sections = Random(seed), Model(), SectionsOfV2()
    wanted: list[tuple[EncodedSection, Status]] = []
    found: list[tuple[EncodedSection, Status]] = []
    to_come: list[int] = []
    next_id = 0
    for _ in range(random.randint(1, 6)):
        again = random.random() < 0.25
        first = max(0, next_id - random.randint(1, 8)) if again else next_id
        count = random.randint(1, 20)
        if random.random() < 0.2:
            section, adds = striped(first, count, random.choice((2, 3)))
        else:
            section = encoded_section([b"x"] * count, first)
            adds = encode_adds(section, v2.VERSION)
        next_id = max(next_id, section.last_entry + 1)
        sections.expect(SentSection(section, adds), adds)
        model.sent.append(Sent(section, set(adds.entry_ids)))
        to_come += adds.entry_ids
    if random.random() < 0.5:
        to_come.sort()
    if random.random() < 0.3:
        random.shuffle(to_come)
    while to_come:
        run = [to_come.pop(0)]
        while to_come and to_come[0] == run[-1] + 1 and random.random() < 0.9:
            run.append(to_come.pop(0))
        status = random.choice(
            [RpcStatus.EOK] * 6 + [RpcStatus.EFENCED, RpcStatus.ETOOMANYREQUESTS]
        )
        for entry_id in run:
            if (done := model.answer(entry_id, status)) is not None:
                wanted.append((done.section, meaning(done.status)))
        for sent in sections.take(Answers(LEDGER, run[0], len(run), status, 0)):
            found.append((sent.section, sent.reply().status))
    assert found == wanted
    assert not model.sent
    with pytest.raises(MalformedFrameError):
        sections.take(Answers(LEDGER, 0, 1, RpcStatus.EOK, 0))


def meaning(status: RpcStatus) -> Status:
    return {RpcStatus.EOK: Status.OK, RpcStatus.EFENCED: Status.FENCED}.get(status, Status.BUSY)


@pytest.mark.parametrize("version", KINDS)
def test_what_nobody_asked_for_ends_the_connection(version: int) -> None:
    sections, ledger_id, first = ten_sent(version)

    with pytest.raises(MalformedFrameError, match=str(first + 10)):
        sections.take(Answers(ledger_id, first, 11, RpcStatus.EOK, 0))


@pytest.mark.parametrize("version", KINDS)
def test_an_answer_that_comes_twice_ends_the_connection(version: int) -> None:
    sections, ledger_id, first = ten_sent(version)
    assert not sections.take(Answers(ledger_id, first, 3, RpcStatus.EOK, 0))
    for name in (first + 2, first + 1):
        with pytest.raises(MalformedFrameError):
            sections.take(Answers(ledger_id, name, 1, RpcStatus.EOK, 0))


def test_an_answer_of_the_other_version_is_nobodys() -> None:
    """An entry's id is no number, and a number no entry's id."""
    old, new = SectionsOfV2(), SectionsOfV3()
    sent_to(old, encoded_section([b"x"] * 10), v2.VERSION)
    adds = sent_to(new, encoded_section([b"x"] * 10), v3.VERSION)
    with pytest.raises(MalformedFrameError):
        old.take(Answers(None, 3, 1, RpcStatus.EOK, 0))
    with pytest.raises(MalformedFrameError):
        new.take(Answers(LEDGER, adds.numbers[3], 1, RpcStatus.EOK, 0))


def test_numbers_are_not_free_while_an_answer_may_come() -> None:
    sections = SectionsOfV3()
    adds = sent_to(sections, encoded_section([b"x"] * 10), v3.VERSION)
    assert not sections.are_free(adds)
    (done,) = sections.take(Answers(None, adds.numbers[0], 10, RpcStatus.EOK, 0))
    assert done.reply().status is Status.OK
    assert sections.are_free(adds)
