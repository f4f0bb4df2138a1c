"""Every record of a section is looked at before any of them is stored."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bookie_server.wire import add_frames, codec
from bookie_server.wire.digest import HmacDigest
from bookie_server.wire.limits import ID_SPAN_MAX, RUN_ENTRIES_MAX
from bookie_server.wire.messages import Section, Status
from bookie_server.wire.record import parse_run
from bookkeeper_metadata.model import DigestType
from tests.doubles.records import KEY, add, records, section
from tests.doubles.storage import running_bookie

HMAC = HmacDigest(b"")
SPOILT = {
    "lac": records([b"b"], 5, lac=5),
    "mixed sizes": records([b"bb"], 5, lac=9),
    "no lac": records([b"b"], 5, lac=-2),
    "length": records([b"b"], 5, length_before=-9),
}
"""A record that no writer makes, to stand between others."""


@pytest.mark.parametrize("spoilt", SPOILT.values(), ids=SPOILT)
async def test_a_record_in_the_middle_is_looked_at_like_the_last(
    tmp_path: Path, spoilt: bytes
) -> None:
    run = parse_run(records([b"a"], 4) + spoilt + records([b"c"], 6, length_before=2))
    async with running_bookie(tmp_path) as bookie:
        status = await add(bookie, Section(7, KEY, False, DigestType.CRC32C, run))

        assert status is Status.BAD_REQUEST
        assert bookie.storage.contents.ledgers == {}


@pytest.mark.parametrize("sizes", [(0, 0), (0, 1)], ids=["uniform", "mixed"])
async def test_a_record_without_room_for_its_digest_is_refused(
    tmp_path: Path, sizes: tuple[int, int]
) -> None:
    """A bookie cannot check an HMAC, but no reader could either."""
    full = [records([bytes(size)], at, digest=HMAC) for at, size in enumerate(sizes)]
    run = parse_run(b"".join(full))
    # Records of no digest, sent as if they had one.
    bare = parse_run(records([b""], 0) + records([bytes(sizes[1])], 1))
    async with running_bookie(tmp_path) as bookie:
        answers = [
            await add(bookie, Section(7, KEY, False, DigestType.HMAC, sent)) for sent in (bare, run)
        ]

    assert answers == [Status.BAD_REQUEST, Status.OK]


def test_a_section_has_a_limited_number_of_entries() -> None:
    header = add_frames.encode_section_header(7, KEY, DigestType.CRC32C)
    for extra in (b"", b"x"):  # of one size, and not
        most = records([b""] * (RUN_ENTRIES_MAX - 1) + [extra])
        assert not add_frames.parse_frame(add_frames.encode_section(header, [most]))[0].defect

        frame = add_frames.encode_section(header, [most, records([b""], RUN_ENTRIES_MAX)])
        with pytest.raises(codec.MalformedFrameError, match="records"):
            add_frames.parse_frame(frame)


@pytest.mark.parametrize(("last", "is_refused"), [(ID_SPAN_MAX - 1, False), (ID_SPAN_MAX, True)])
def test_the_ids_of_a_section_lie_close_together(last: int, is_refused: bool) -> None:
    """All that is stored between them may have to be looked up."""
    header = add_frames.encode_section_header(7, KEY, DigestType.CRC32C)
    frame = add_frames.encode_section(header, [records([b"a"], 0), records([b"b"], last)])

    assert bool(add_frames.parse_frame(frame)[0].defect) is is_refused


@pytest.mark.parametrize("is_recovery", [False, True])
async def test_what_breaks_a_limit_is_refused_whoever_sends_it(
    tmp_path: Path, is_recovery: bool
) -> None:
    sent = replace(section([b"x"]), is_recovery=is_recovery, defect="beyond a limit")
    async with running_bookie(tmp_path) as bookie:
        assert await add(bookie, sent) is Status.BAD_REQUEST

        assert bookie.storage.contents.ledgers == {}
