"""Fuzz the decoders: ``python -m tests.fuzzing --inputs 1000000 --seed 1 [--decoder NAME]``.

Every decoder runs in a process of its own, which may crash or hang. An input that fails is written beside the corpus,
named, and makes the exit code 1. ``--keep-seeds`` writes what the product's encoders make into the corpora instead.
"""

from __future__ import annotations

import argparse
import mmap
import multiprocessing
import signal
import sys
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from tests.fuzzing.campaign import Campaign, Failed, Report
from tests.fuzzing.corpus import add_seeds, keep_found, kept
from tests.fuzzing.decoder import Decoder
from tests.fuzzing.decoders import DECODERS
from tests.fuzzing.mutate import SIZE_MAX
from tests.patience import seconds

_PROCESSES = multiprocessing.get_context("fork")
_HANGS_S = 120.0
"""For one input, on two quiet cores: a net below the bounds, which count steps."""


class Shown:
    """Memory that a process shares with its parent: the input it is at, and how many it has begun."""

    _SIZE = 4 * 1024 * 1024

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, self._SIZE)
        self._count = 0

    def show(self, content: bytes) -> None:
        """Before it is decoded; what is longer than any input is not shown whole."""
        shown = content[: self._SIZE - 12]
        self._count += 1
        self._memory[:12] = self._count.to_bytes(8) + len(shown).to_bytes(4)
        self._memory[12 : 12 + len(shown)] = shown

    def count(self) -> int:
        """Inputs begun."""
        return int.from_bytes(self._memory[:8])

    def content(self) -> bytes:
        """The input that was begun last."""
        return self._memory[12 : 12 + int.from_bytes(self._memory[8:12])]


class Run:
    """A decoder's inputs in a process of their own."""

    def __init__(self, decoder: Decoder, inputs: int, seed: int) -> None:
        self.decoder = decoder
        self._shown = Shown()
        self._outcome, theirs = _PROCESSES.Pipe(duplex=False)
        self._process: BaseProcess = _PROCESSES.Process(
            target=_work, args=(decoder, inputs, seed, self._shown.show, theirs)
        )
        self._process.start()
        theirs.close()
        self._seen, self._since = 0, time.monotonic()

    def ended(self) -> Report | Failed | None:
        """What came of it, if it has ended."""
        if self._outcome.poll(0.05):
            return self._received()
        if self._shown.count() != self._seen:
            self._seen, self._since = self._shown.count(), time.monotonic()
        elif time.monotonic() - self._since > seconds(_HANGS_S):
            self._process.kill()
            return Failed(self.decoder.name, self._shown.content(), "does not come to an end")
        return None

    def _received(self) -> Report | Failed:
        try:
            found: Report | Failed = self._outcome.recv()
        except EOFError:
            self._process.join()
            reason = f"ends the process, exit code {self._process.exitcode}"
            return Failed(self.decoder.name, self._shown.content(), reason)
        self._process.join()
        return found


def _work(
    decoder: Decoder, inputs: int, seed: int, show: Callable[[bytes], None], outcome: Connection
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    campaign = Campaign(decoder, show)
    try:
        campaign.replay(kept(decoder.name))
        campaign.run([item for item in kept(decoder.name) if len(item) <= SIZE_MAX], inputs, seed)
        outcome.send(campaign.report)
    except Failed as failed:
        outcome.send(failed)


def run_all(decoders: Sequence[Decoder], inputs: int, seed: int, processes: int) -> list[Failed]:
    """So many inputs in all; prints a line for each decoder, and returns what failed."""
    waiting, running, failures = list(decoders), list[Run](), list[Failed]()
    share = -(-inputs // max(len(decoders), 1))
    while waiting or running:
        while waiting and len(running) < processes:
            running.append(Run(waiting.pop(0), share, seed))
        for run in list(running):
            found = run.ended()
            if found is None:
                continue
            running.remove(run)
            if isinstance(found, Failed):
                failures.append(found)
                path = keep_found(found.decoder, found.content, found.reason)
                _print(f"{found.decoder}: FAILED: {found.reason}; kept in {path}")
            else:
                _print(str(found))
    return failures


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    """Exit code 1: an input failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzzing", description=__doc__)
    parser.add_argument("--inputs", type=int, default=50_000, help="of all decoders together")
    parser.add_argument("--seed", type=int, help="drawn from the clock without it")
    parser.add_argument("--decoder", choices=sorted(DECODERS), help="this one only")
    parser.add_argument("--processes", type=int, default=1, help="at the same time")
    parser.add_argument("--keep-seeds", action="store_true", help="only add to the corpora")
    asked = parser.parse_args()
    decoders = [DECODERS[asked.decoder]] if asked.decoder else list(DECODERS.values())
    if asked.keep_seeds:
        for decoder in decoders:
            _print(f"{decoder.name}: {add_seeds(decoder.name, decoder.seeds())} new")
        return 0
    seed = asked.seed if asked.seed is not None else time.time_ns() // 1_000_000 % 10**9
    _print(f"seed={seed}")
    failures = run_all(decoders, asked.inputs, seed, asked.processes)
    for failed in failures:
        _print(str(failed))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
