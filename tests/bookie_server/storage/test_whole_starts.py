"""Every crash of whole starts, from the look at the directories to the cookie in the metadata.

What the next process finds are the disks after a power cut and the metadata as they were then: it must
start, on the same directories, deny nothing, and count on.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any, TypeVar, cast

import pytest

from bookie_server import identity, server
from bookie_server.core.records import Add, Fence, MasterKey
from bookie_server.identity import Identity
from bookie_server.settings import BookieSettings
from bookie_server.storage.engine import Storage
from bookie_server.storage.identity.cookie_file import read_cookie, read_start
from bookkeeper_metadata.cookies import CookieStore
from bookkeeper_metadata.store.memory import MemoryStore
from bookkeeper_metadata.store.memory_tree import MemoryTree
from tests.simulation.kit.crash_states import CrashStates
from tests.simulation.kit.files import SimFileSystem
from tests.simulation.kit.storage_model import (
    INSTANCE,
    Model,
    open_laid_out,
    read_all,
    run_of,
    tiny,
)

T = TypeVar("T")
ROOT = "/ledgers"
CLUSTER = "c"
BOOKIE = "b:1"
STATES_MIN = 300
STATES_MIN_FULL = 3000
GOLDEN_INSTANCE = b"golden-bookie-id"


def outcome_of(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run what waits for nobody, without a loop: starts are many, and begin within one another."""
    try:
        while True:
            coroutine.send(None)
    except StopIteration as done:
        return cast("T", done.value)


class Machine:
    """A bookie's disks, what the metadata knows of it, and the model of what it stores."""

    def __init__(self, model: Model, instance_id: bytes = INSTANCE) -> None:
        self.model = model
        self.files = model.files
        self.tree = MemoryTree()
        self.instance_id = instance_id
        self.before_each: Callable[[], None] = lambda: None
        """Called before everything that changes disks or metadata."""

    def start(self) -> Storage:
        """All that comes before the first answer, as the process does it."""
        self.files.before_step = self.before_each
        store = MemoryStore(self.tree, fault=lambda *_: self.before_each())
        layout = self.model.layout
        settings = BookieSettings(
            bookie_id=BOOKIE,
            journal_directories=layout.journal_directories,
            ledger_directories=layout.ledger_directories,
        )
        with pytest.MonkeyPatch.context() as patch:
            for name, double in {
                "RealFileSystem": lambda: self.files,
                "Bookie": _Served,
                # The same start always draws the same ids, or no two states would be the same.
                "SystemRandom": lambda: Random(str(sorted(self.known().items()))),
                "_open_storage": self._open,
                "put_ledgers_in_limbo": _no_other_ledger_names_it,
            }.items():
                patch.setattr(server, name, double)
            patch.setattr(asyncio, "to_thread", _at_once)
            patch.setattr(Identity, "watch", _nobody_else)
            patch.setattr(identity, "instance_id_of", lambda *_: self.instance_id)
            ready = outcome_of(
                server._prepare(store, ROOT, settings, CLUSTER, False, is_sealed=False)
            )
        self.before_each()
        self.files.before_step = None
        return cast("_Served", ready.bookie).storage

    def _open(self, files: SimFileSystem, _: object, __: object, locks: ExitStack) -> Storage:
        locks.close()  # taken again by the next line
        return open_laid_out(files, self.model.layout, self.instance_id)

    def known(self) -> dict[str, bytes]:
        """What the metadata holds."""
        nodes = {path: self.tree.node(path) for path in self.tree.paths()}
        return {path: node.value for path, node in nodes.items() if node is not None}

    def after(self, image: SimFileSystem) -> Machine:
        """The next process, on what a power cut left of the disks."""
        machine = Machine(self.model, self.instance_id)
        machine.files = image
        for path, value in self.known().items():
            if path != "/":
                machine.tree.create(path, value)
        return machine


class _Served:
    """Stands for the bookie that would answer now."""

    def __init__(self, storage: Storage, settings: BookieSettings) -> None:
        self.storage, self.space, self.fail = storage, self, None
        self.is_sealed = False

    async def start(self) -> None: ...

    def ledgers_in_limbo(self) -> tuple[int, ...]:
        return ()


async def _at_once(action: Callable[..., T], *arguments: object) -> T:
    return action(*arguments)


async def _nobody_else(*_: object) -> None: ...


async def _no_other_ledger_names_it(storage: Storage, *_: object) -> None:
    storage.contents.set_limbo(tuple(storage.contents.ledgers))
    storage.checkpoint_now()


class Witness:
    """Judges every crash of one machine's starts."""

    def __init__(self, states: CrashStates, machine: Machine) -> None:
        self._states = states
        self._machine = machine
        machine.before_each = self.look

    def look(self) -> None:
        machine = self._machine
        known = tuple(sorted(machine.known().items()))
        for image in self._states.of(machine.files, machine.model.promised, known):
            following, is_torn = machine.after(image), image.is_torn
            self._judge(following, is_torn)
            again = image.crash(self._states.random, lambda _: "drop")
            known_then = tuple(sorted(following.known().items()))
            if self._states.is_news(again, machine.model.promised, known_then):
                self._judge(following.after(again), is_torn)

    def _judge(self, machine: Machine, is_torn: bool) -> None:
        storage = machine.start()
        when = f"steps={self._machine.files.steps} is_torn={is_torn}"
        machine.model.check(storage, when)
        assert not storage.contents.is_damaged, when
        if not is_torn:
            assert not any(facts.is_limbo for facts in storage.contents.ledgers.values()), when
        recorded = outcome_of(CookieStore(MemoryStore(machine.tree), ROOT).read(BOOKIE))
        assert recorded.cookie is not None, f"{when}: emptied disks would count as new"
        assert recorded.counter is not None, when
        paths = machine.model.layout.directories
        counted = {read_start(machine.files, path) for path in paths}
        assert [each.number for each in counted] == [recorded.counter.starts], when
        sets = {read_cookie(machine.files, path).directories for path in paths}
        assert len(sets) == 1, f"{when}: the directories know each other"
        storage.close()


def new_bookie(states: CrashStates, random: Random) -> None:
    """A first start, two groups, and two starts more."""
    machine = Machine(Model(SimFileSystem(), layout=tiny(1, random.randrange(1, 3))))
    model = machine.model
    witness = Witness(states, machine)
    for number in range(3):
        model.storage = machine.start()
        model.write(
            [MasterKey(number, bytes(20)), Add(run_of(number, range(random.randrange(1, 5))))]
        )
        if random.randrange(2):
            model.write([MasterKey(7, bytes(20)), Fence(7)])
        witness.look()
        model.storage.close()


def adoption(states: CrashStates, random: Random) -> None:
    """Version 0.1 left directories without cookies; their journal, logs and index are of format 1."""
    machine = Machine(version_0_1(), GOLDEN_INSTANCE)
    witness = Witness(states, machine)
    for number in range(2):
        machine.model.storage = machine.start()
        run = run_of(30 + number, range(random.randrange(1, 5)), size=random.randrange(40))
        machine.model.write([Add(run)])
        witness.look()
        if random.randrange(2):
            machine.model.checkpoint()
        machine.model.storage.close()


def version_0_1() -> Model:
    """What tests/golden/v1 has, on simulated disks."""
    model = Model(SimFileSystem(), layout=tiny())
    for name, directory in (("journal", "/journal0"), ("ledgers", "/ledgers0")):
        for source in sorted((Path("tests/golden/v1/storage") / name).iterdir()):
            with model.files.create(f"{directory}/{source.name}") as file:
                file.write_at(0, [source.read_bytes()])
                file.sync()
        model.files.sync_dir(directory)
    storage = open_laid_out(model.files.copy(), model.layout, GOLDEN_INSTANCE)
    # That these are right is shown by test_golden.py.
    for ledger_id in (7, 9):
        model.entries[ledger_id] = read_all(storage, ledger_id)
        model.sent[ledger_id] = {i: {each} for i, each in model.entries[ledger_id].items()}
    assert [len(each) for each in model.entries.values()] == [4, 1]
    model.keys, model.tombstones = {7: b"k" * 20}, {21}
    model.fenced, model.fences_sent = {7}, {7}
    return model


HISTORIES = (new_bookie, adoption)


def explore(
    history: Callable[[CrashStates, Random], None], seed: int, states_min: int
) -> CrashStates:
    """Histories of one kind, until they have had so many states."""
    states = CrashStates(Random(seed), draws=12)
    while len(states) < states_min:
        before = len(states)
        history(states, Random(seed + before))
        assert len(states) > before, "nothing new is found any more"
    sys.stdout.write(f"{history.__name__}: {len(states)} states\n")
    return states


@pytest.mark.slow
@pytest.mark.parametrize("history", HISTORIES, ids=lambda history: history.__name__)
@pytest.mark.conformance("S5")
def test_no_crash_of_a_start_keeps_the_next_from_starting(
    history: Callable[[CrashStates, Random], None],
) -> None:
    explore(history, 0, STATES_MIN)


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("history", HISTORIES, ids=lambda history: history.__name__)
def test_no_crash_of_many_new_starts_keeps_the_next_from_starting(
    history: Callable[[CrashStates, Random], None],
) -> None:
    explore(history, time.time_ns() // 1_000_000 % 10**9, STATES_MIN_FULL)
