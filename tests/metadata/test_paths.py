"""URIs and node names, both ways."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper_metadata.paths import LedgerLayout, MetadataServiceUri, Paths, parse_uri

PATHS = Paths("/ledgers")


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        (
            "zk+hierarchical://h1:2181;h2:2182/ledgers",
            MetadataServiceUri(("h1:2181", "h2:2182"), "/ledgers", LedgerLayout.HIERARCHICAL),
        ),
        ("zk://h1/a/b/", MetadataServiceUri(("h1:2181",), "/a/b", None)),
        ("zk+null://h1:1,[::1]:2/l", MetadataServiceUri(("h1:1", "[::1]:2"), "/l", None)),
        (
            "zk+longhierarchical://h:1/l",
            MetadataServiceUri(("h:1",), "/l", LedgerLayout.LONG_HIERARCHICAL),
        ),
    ],
)
def test_a_uri_names_servers_root_and_layout(uri: str, expected: MetadataServiceUri) -> None:
    assert parse_uri(uri) == expected
    assert parse_uri(str(expected)) == expected


@pytest.mark.parametrize(
    "uri",
    [
        "", "localhost:2181", "http://h:1/l", "zk://h:1", "zk://h:1/", "zk:///ledgers",
        "zk+flat://h:1/l", "zk://h:0/l", "zk://h:70000/l", "zk://h:x/l", "zk://h:1;/l",
        "zk://h:1/a//b",
    ],
)  # fmt: skip
def test_what_is_no_uri_is_refused_by_name(uri: str) -> None:
    with pytest.raises(ValueError) as error:
        parse_uri(uri)
    assert repr(uri) in str(error.value)


@pytest.mark.parametrize(
    ("ledger_id", "path"),
    [
        (0, "/ledgers/00/0000/L0000"),
        (1234567890, "/ledgers/12/3456/L7890"),
        (2**31 - 2, "/ledgers/21/4748/L3646"),
        (2**31 - 1, "/ledgers/000/0000/0021/4748/L3647"),
        (2**63 - 1, "/ledgers/922/3372/0368/5477/L5807"),
    ],
)
def test_short_ids_have_short_paths_and_long_ones_long(ledger_id: int, path: str) -> None:
    assert PATHS.ledger(ledger_id) == path
    assert PATHS.ledger_id(path) == ledger_id


@given(st.integers(0, 2**63 - 1), st.sampled_from(LedgerLayout))
def test_every_ledger_path_leads_back_to_its_id(ledger_id: int, layout: LedgerLayout) -> None:
    assert PATHS.ledger_id(PATHS.ledger(ledger_id, layout)) == ledger_id


@pytest.mark.parametrize(
    "path",
    ["/ledgers/LAYOUT", "/ledgers/00/0000", "/other/00/0000/L0000", "/ledgers/idgen/ID-0000000000",
     "/ledgers/999/9999/9999/9999/L9999", "/ledgers/00/0000/L00000"],
)  # fmt: skip
def test_other_nodes_are_no_ledgers(path: str) -> None:
    assert PATHS.ledger_id(path) is None


@given(st.integers(0, 2**63 - 1), st.sampled_from(LedgerLayout))
def test_what_a_folder_may_hold_is_known_by_its_path(ledger_id: int, layout: LedgerLayout) -> None:
    path = PATHS.ledger(ledger_id, layout)
    folder = path.rpartition("/")[0]
    before = range(0)
    while folder != PATHS.root:
        first, last = PATHS.ids_below(folder, layout)
        held = range(first, last + 1)
        assert ledger_id in held
        assert before.start in held or not before
        for beyond in (first - 1, last + 1):
            if 0 <= beyond < 2**63:
                assert not PATHS.ledger(beyond, layout).startswith(f"{folder}/")
        before, folder = held, folder.rpartition("/")[0]


def test_a_folder_of_ids_that_lie_elsewhere_holds_none() -> None:
    long_one = "/ledgers/000/0000/0000"
    first, last = PATHS.ids_below(long_one)
    assert first > last
    assert PATHS.ids_below(long_one, LedgerLayout.LONG_HIERARCHICAL) == (0, 10**8 - 1)
    # Those behind have long paths.
    assert PATHS.ids_below("/ledgers/21") == (2_100_000_000, 2**31 - 2)


def test_node_names_are_apaches() -> None:
    assert PATHS.bookie("b:1") == "/ledgers/available/b:1"
    assert PATHS.bookie("b:1", readonly=True) == "/ledgers/available/readonly/b:1"
