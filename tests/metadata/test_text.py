"""Messages as text that anybody may have written are read in no time, or refused."""

from __future__ import annotations

import pytest

from bookkeeper_metadata.cookies import parse_cookie
from bookkeeper_metadata.election import elected_auditor
from bookkeeper_metadata.errors import MetadataCorruptError
from bookkeeper_metadata.paths import Paths
from bookkeeper_metadata.proto.text import LINE_SIZE_MAX, TEXT_SIZE_MAX, parse_text
from bookkeeper_metadata.proto.underreplication_pb2 import UnderreplicatedLedgerFormat
from bookkeeper_metadata.store.memory import MemoryStore
from bookkeeper_metadata.store.operations import Node
from bookkeeper_metadata.underreplication import parse_mark

HOSTILE = {
    "one line": "x: 1 " * (LINE_SIZE_MAX // 5 + 1),
    "many lines": "x: 1\n" * (TEXT_SIZE_MAX // 5 + 1),
    "a list": f"x: [{','.join('1' * LINE_SIZE_MAX)}]",
    "deep": "a{" * 5_000 + "}" * 5_000,
    "no message": "replica",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
async def test_what_nobody_writes_is_refused_wherever_it_stands(text: str) -> None:
    """On the event loop it took 40 s, and with that the session; or it ended who read it."""
    with pytest.raises(ValueError, match=r"\S"):
        parse_text(text, UnderreplicatedLedgerFormat())
    with pytest.raises(MetadataCorruptError):
        parse_mark(Node(text.encode(), 0, 0), "/mark")
    with pytest.raises(MetadataCorruptError):
        parse_cookie(b"5\n" + text.encode(), "/cookie")
    async with MemoryStore() as store:
        election = Paths("/l").auditor_election
        await store.create(f"{election}/V_1", b"", make_parents=True)
        await store.put(election, text.encode(), 0)
        assert await elected_auditor(store, "/l") is None


def test_what_newer_versions_may_write_is_passed_over() -> None:
    text = 'replica: "a:1"\nnews { of: [1, 2] }\nreplica: "b:1"\n' + "more: 1\n" * 1_000
    found = parse_text(text, UnderreplicatedLedgerFormat())
    assert list(found.replica) == ["a:1", "b:1"]


def test_a_mark_of_hundreds_of_bookies_is_read() -> None:
    text = "".join(f'replica: "bookie-{at}.example.org:3181"\n' for at in range(1_000))
    assert len(parse_mark(Node(text.encode(), 0, 0), "/mark").bookie_ids) == 1_000
