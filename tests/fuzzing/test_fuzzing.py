"""Whatever bytes a decoder is given, it returns or raises what it documents, within bounds of memory and of steps.

All that is kept is replayed, what once failed above all; then come fresh inputs, the same ones every time. The long
suite draws its seed and prints it.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from random import Random, SystemRandom
from typing import Any

import pytest

from tests.fuzzing.campaign import Campaign, Failed
from tests.fuzzing.corpus import CORPORA, items_of, kept
from tests.fuzzing.decoder import Bound, Decoder
from tests.fuzzing.decoders import DECODERS
from tests.fuzzing.mutate import SIZE_MAX, mutated
from tests.patience import seconds
from tests.sources import REPOSITORY

INPUTS = 100
"""Of each decoder, in `make test`."""
FULL_INPUTS = 50_000
"""Of all together, in `make full`."""

every_decoder = pytest.mark.parametrize("name", DECODERS)


@every_decoder
def test_what_is_kept_does_what_it_may(name: str) -> None:
    campaign = Campaign(DECODERS[name])

    campaign.replay(kept(name))

    assert campaign.report.decoded > 0, "nothing of the corpus is valid"


@every_decoder
def test_fresh_inputs_do_what_they_may(name: str) -> None:
    campaign = Campaign(DECODERS[name])
    corpus = kept(name)
    for content in corpus:  # what is imported at a first call is no part of an input's cost
        campaign.check(content, memory=False, steps=False)

    campaign.run(corpus, INPUTS, seed=0)

    assert campaign.report.inputs == len(corpus) + INPUTS


@pytest.mark.full
@pytest.mark.slow
def test_many_fresh_inputs_do_what_they_may() -> None:
    seed = SystemRandom().randrange(1, 10**9)
    command = [sys.executable, "-W", "ignore", "-m", "tests.fuzzing"]
    arguments = ["--inputs", str(FULL_INPUTS), "--seed", str(seed)]

    done = subprocess.run(
        [*command, *arguments], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )

    sys.stdout.write(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_corpus_has_its_decoder() -> None:
    assert {path.name for path in CORPORA.iterdir()} == set(DECODERS)
    assert all(items_of(CORPORA / name / "seeds.hex") for name in DECODERS)


def test_the_seeds_that_are_kept_are_what_the_product_encodes() -> None:
    """Else a new format would be fuzzed by old inputs only: `python -m tests.fuzzing --keep-seeds` adds them."""
    stable = [name for name in DECODERS if not name.startswith(("arrow", "avro", "footer", "log-"))]

    missing = {name for name in stable if not set(DECODERS[name].seeds()) <= set(kept(name))}

    assert missing == set()


# -- the harness itself ---------------------------------------------------------------------------


def planted(decode: Callable[[bytes], object], **how: Any) -> Decoder:
    """A decoder with a defect; its inputs begin with a length."""
    return Decoder(
        name="planted", decode=decode, errors=(ValueError,), seeds=list, covers=(), **how
    )


def _with_the_wrong_error(content: bytes) -> str:
    if len(content) < 4:
        raise ValueError("no length")
    names = {0: "zero", 5: "five"}
    return names[int.from_bytes(content[:4])]


def _with_memory_for_a_claim(content: bytes) -> int:
    return len(
        bytes(int.from_bytes(content[:4]))
    )  # of zeros, which take no memory of the machine's


def _in_quadratic_time(content: bytes) -> int:
    found = 0
    for at in range(len(content)):
        for other in range(at):
            found += content[at] == content[other]
    return found


def _without_an_end(content: bytes) -> int:
    at = 0
    while at < len(content):
        at += content[at] & 1
    return at


@pytest.mark.parametrize(
    ("decode", "reason"),
    [
        (_with_the_wrong_error, "raises KeyError"),
        (_with_memory_for_a_claim, r"takes \d+ bytes, allowed are|raises MemoryError"),
        (_in_quadratic_time, r"takes more than \d+ lines"),
    ],
)
def test_a_decoder_with_a_defect_is_noticed(decode: Callable[[bytes], object], reason: str) -> None:
    corpus = [b"\0\0\0\5hello" + bytes(range(1, 256, 2)) * 2]

    with pytest.raises(Failed, match=reason) as failed:
        Campaign(planted(decode)).run(corpus, 2_000, seed=1)

    # The input alone shows it again.
    with pytest.raises(Failed, match=reason):
        Campaign(planted(decode)).replay([failed.value.content])


def test_a_decoder_without_an_end_is_ended() -> None:
    """Where steps are counted; of other inputs the command's parent process notices it."""
    with pytest.raises(Failed, match=r"takes more than \d+ lines"):
        Campaign(planted(_without_an_end)).check(b"\0", memory=False, steps=True)


def test_a_value_that_does_not_come_back_is_noticed() -> None:
    unfaithful = planted(lambda content: content.lower(), encode=lambda value: value[1:])

    with pytest.raises(Failed, match="comes back as"):
        Campaign(unfaithful).replay([b"Ab"])


def test_a_decoder_within_its_bounds_passes() -> None:
    sound = planted(lambda content: content.decode(), memory=Bound(8_192, 8))

    campaign = Campaign(sound)
    campaign.run([b"text"], 500, seed=3)

    assert 0 < campaign.report.decoded < campaign.report.inputs == 500


_CRASHING = """
import os, sys
from tests.fuzzing.__main__ import Run
from tests.fuzzing.test_fuzzing import planted

def decode(content):
    if len(content) > 40:
        os.abort()

from tests.fuzzing import __main__ as command
command.kept = lambda _: [b"short"]
run = Run(planted(decode), 5_000, 1)
while (found := run.ended()) is None:
    pass
sys.stdout.write(str(found))
"""


@pytest.mark.slow
def test_a_decoder_that_ends_the_process_is_noticed_with_its_input() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _CRASHING],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds(300),
    )

    assert "planted: ends the process, exit code -6; input of" in done.stdout, done.stderr


def test_inputs_follow_from_their_seed() -> None:
    corpus = kept("own-frame")

    def drawn(seed: int) -> list[bytes]:
        random = Random(seed)
        return [mutated(random, corpus).content for _ in range(200)]

    assert drawn(1) == drawn(1) != drawn(2)
    assert max(map(len, drawn(1))) <= SIZE_MAX
    assert len(set(drawn(1))) > 150
