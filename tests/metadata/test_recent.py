"""A question that many ask is asked once, and its answer is not older than it may be."""

from __future__ import annotations

import asyncio

import pytest

from bookkeeper_metadata.foundation.recent import Recent


class Question:
    def __init__(self) -> None:
        self.asked = 0
        self.fails = False

    async def __call__(self) -> int:
        self.asked += 1
        asked = self.asked
        await asyncio.sleep(0)
        if self.fails:
            raise OSError("no answer")
        return asked


async def test_those_who_ask_at_once_share_an_answer() -> None:
    question = Question()
    recent = Recent(question, 60)

    assert await asyncio.gather(*(recent.get() for _ in range(5))) == [1] * 5
    assert await recent.get() == 1


async def test_an_old_answer_is_not_given() -> None:
    question = Question()
    recent = Recent(question, -1)

    assert [await recent.get() for _ in range(3)] == [1, 2, 3]


async def test_what_was_forgotten_is_asked_anew() -> None:
    question = Question()
    recent = Recent(question, 60)
    await recent.get()

    recent.forget()

    assert await recent.get() == 2


async def test_an_error_is_no_answer() -> None:
    question = Question()
    recent = Recent(question, 60)
    question.fails = True
    with pytest.raises(OSError, match="no answer"):
        await recent.get()
    question.fails = False

    assert await recent.get() == 2
