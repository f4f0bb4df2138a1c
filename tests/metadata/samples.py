"""Ledger metadata to test with."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from bookkeeper_metadata.model import DigestType, Fragment, LedgerMetadata, LedgerState

ENSEMBLE = ("192.0.2.1:3181", "192.0.2.2:3181", "192.0.2.3:3181")


def open_ledger(**changes: Any) -> LedgerMetadata:
    """An open ledger of three bookies, with ``changes``."""
    fields: dict[str, Any] = {
        "ensemble_size": 3,
        "write_quorum": 3,
        "ack_quorum": 2,
        "fragments": (Fragment(0, ENSEMBLE),),
    }
    return LedgerMetadata(**{**fields, **changes})


_texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_longs = st.integers(0, 2**63 - 1)


@st.composite
def ledgers(draw: st.DrawFn) -> LedgerMetadata:
    """Any metadata a ledger can have."""
    ensemble_size = draw(st.integers(1, 5))
    write_quorum = draw(st.integers(1, ensemble_size))
    ensembles = st.lists(
        _texts.filter(bool), min_size=ensemble_size, max_size=ensemble_size, unique=True
    ).map(tuple)
    later = draw(st.sets(st.integers(1, 2**62), max_size=3))
    state = draw(st.sampled_from(LedgerState))
    is_closed = state is LedgerState.CLOSED
    return LedgerMetadata(
        ensemble_size=ensemble_size,
        write_quorum=write_quorum,
        ack_quorum=draw(st.integers(1, write_quorum)),
        fragments=tuple(Fragment(first, draw(ensembles)) for first in sorted({0, *later})),
        state=state,
        last_entry=draw(st.integers(-1, 2**63 - 1)) if is_closed else -1,
        length=draw(_longs) if is_closed else 0,
        digest_type=draw(st.sampled_from(DigestType)),
        password=draw(st.binary(max_size=20)),
        custom_metadata=draw(st.dictionaries(_texts, st.binary(max_size=9), max_size=3)),
        created_ms=draw(st.integers(-1, 2**62)),
        writer_token=draw(_longs),
    )
