"""Frames in pieces: what is cut is put together again, and what a peer makes up is refused."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from random import Random

import pytest

from bookie_server.wire import add_frames, codec, limits, pieces
from bookie_server.wire.limits import FRAME_SIZE_MAX, PIECE_SIZE_MAX, PIECE_SIZE_MIN
from bookie_server.wire.pieces import Pieces, is_piece, messages_of
from tests.doubles.records import encoded_section

HEAD = b"\xff\xff\xff\xff"
MOST, LEAST = 24, 12
"""Sizes at which everything can be tried."""


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "PIECE_SIZE_MAX", MOST)
    monkeypatch.setattr(pieces, "PIECE_SIZE_MIN", LEAST)


def first_piece(frame_size: int, content: bytes) -> bytes:
    return HEAD + frame_size.to_bytes(4) + content


def joined(messages: Sequence[bytes]) -> bytes:
    received = Pieces(messages[0])
    for message in messages[1:]:
        assert received.missing_bytes
        received.add(message)
    return received.join()


def test_a_frame_that_fits_a_message_is_the_message() -> None:
    """Not even a copy of it."""
    frame = encoded_section([bytes(1_000)]).data
    (message,) = messages_of(frame)
    assert message is frame
    assert not is_piece(message)


@pytest.mark.usefixtures("tiny")
def test_every_frame_comes_together_again() -> None:
    for size in range(1, 20 * MOST):
        frame = Random(size).randbytes(size)
        messages = list(messages_of(frame))

        if size <= MOST:
            assert messages == [frame]
            continue
        assert is_piece(messages[0])
        assert not any(len(message) < LEAST for message in messages[:-1])
        assert not any(not message or len(message) > MOST for message in messages)
        assert joined(messages) == frame


@pytest.mark.parametrize(
    "size", [PIECE_SIZE_MAX + 1, 2 * PIECE_SIZE_MAX - 8, 2 * PIECE_SIZE_MAX, FRAME_SIZE_MAX]
)
def test_frames_of_real_sizes_come_together_again(size: int) -> None:
    frame = Random(size).randbytes(size)
    messages = list(messages_of(frame))

    assert max(map(len, messages)) <= PIECE_SIZE_MAX
    assert min(map(len, messages[:-1])) >= PIECE_SIZE_MIN
    assert joined(messages) == frame


@pytest.mark.usefixtures("tiny")
def test_a_frame_may_be_cut_at_every_place_that_leaves_no_crumbs() -> None:
    """Whoever sends need not cut as our client does; only the last piece may be small."""
    frame = bytes(range(4 * MOST))
    whole = first_piece(len(frame), frame)
    for first in range(8, len(whole)):
        for second in range(first + 1, len(whole) + 1):
            places = sorted({0, first, second, len(whole)})
            messages = [whole[begin:end] for begin, end in pairwise(places)]
            if any(len(message) < LEAST for message in messages[:-1]):
                with pytest.raises(codec.MalformedFrameError):
                    joined(messages)
            else:
                assert joined(messages) == frame


@pytest.mark.parametrize(
    "size", [0, 1, PIECE_SIZE_MAX, FRAME_SIZE_MAX + 1, 2**31 - 1, 2**31, 2**32 - 1]
)
def test_a_frame_too_large_or_one_that_needs_no_pieces_is_refused(size: int) -> None:
    with pytest.raises(codec.MalformedFrameError):
        Pieces(first_piece(size, bytes(PIECE_SIZE_MIN)))


@pytest.mark.parametrize("size", range(4, 8))
def test_a_first_piece_without_a_size_is_refused(size: int) -> None:
    with pytest.raises(codec.MalformedFrameError):
        Pieces(first_piece(FRAME_SIZE_MAX, b"")[:size])


@pytest.mark.parametrize("more", [b"", b"x", bytes(PIECE_SIZE_MIN - 1), bytes(PIECE_SIZE_MIN + 2)])
def test_crumbs_and_pieces_beyond_the_frame_are_refused(more: bytes) -> None:
    """Millions of one byte each would cost more than the frame."""
    received = Pieces(first_piece(PIECE_SIZE_MAX + 1, bytes(PIECE_SIZE_MIN)))
    assert received.missing_bytes == PIECE_SIZE_MIN + 1
    with pytest.raises(codec.MalformedFrameError):
        received.add(more)
    received.add(bytes(PIECE_SIZE_MIN + 1))
    assert received.join() == bytes(PIECE_SIZE_MAX + 1)


def test_no_frame_begins_like_a_piece() -> None:
    """Its first number is the size of a header, which has a limit."""
    assert int.from_bytes(HEAD) > limits.HEADER_SIZE_MAX
    with pytest.raises(codec.MalformedFrameError):
        add_frames.parse_frame(first_piece(20, bytes(20)))
    assert not is_piece(b"")


def test_a_frame_has_a_limited_number_of_sections() -> None:
    one = encoded_section([b""]).data
    assert len(add_frames.parse_frame(one * limits.FRAME_SECTIONS_MAX)) == limits.FRAME_SECTIONS_MAX
    with pytest.raises(codec.MalformedFrameError):
        add_frames.parse_frame(one * (limits.FRAME_SECTIONS_MAX + 1))
