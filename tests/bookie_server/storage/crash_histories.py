"""Histories of a bookie's disks, of every kind, drawn at random; each moment of them is judged."""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import suppress
from random import Random

import pytest

from bookie_server.core.presence import Presence
from bookie_server.core.records import (
    Add,
    ExplicitLac,
    Fence,
    JournalRecord,
    MasterKey,
    Replace,
    Tombstone,
)
from bookie_server.settings import StorageSettings
from bookie_server.storage.disk.overlay import OverlayFileSystem
from bookie_server.storage.identity.doubt import mark_doubtful
from bookie_server.storage.index import directory as index_directory
from bookie_server.storage.journal.journal_files import PREPARED
from tests.bookie_server.storage.crash_judge import CrashJudge, facts_of
from tests.simulation.kit.crash_states import CrashStates
from tests.simulation.kit.files import SimFileSystem, SimulatedCrash
from tests.simulation.kit.storage_model import READ_SIZE, Model, run_of, tiny

History = Callable[[CrashStates, Random], None]
LEDGERS = range(1, 4)
SIZES = (3, 40, 300, 1200)
PLENTY = 1 << 30


def a_layout(random: Random) -> StorageSettings:
    """Mostly the one that costs least."""
    return tiny(random.choice((1, 1, 1, 2)), random.choice((1, 1, 2)))


def a_group(model: Model, random: Random, number: int) -> list[JournalRecord]:
    """What a bookie may write at once: an add, mostly with something beside it."""
    ledger_id = random.choice(LEDGERS)
    known = len(model.entries.get(ledger_id, {}))
    ids = range(known, known + random.randrange(1, 4))
    records: list[JournalRecord] = [
        MasterKey(ledger_id, bytes([ledger_id]) * 20),
        Add(run_of(ledger_id, ids, size=random.choice(SIZES))),
    ]
    match random.randrange(6):
        case 0:
            records.append(Fence(ledger_id))
        case 1:
            packet = struct.pack(">qq4x", ledger_id, ids[-1])
            records.append(ExplicitLac(ledger_id, packet))
        case 2:
            records.append(Tombstone(100 + number, 101 + number))
        case 3:
            return [MasterKey(ledger_id + 4, bytes(20)), Fence(ledger_id + 4)]
        case _:
            pass
    return records


def lived(layout: StorageSettings, random: Random, checkpoints: int = 1) -> Model:
    """Disks on which a bookie has run for a while: with logs, and a journal behind them."""
    model = Model(SimFileSystem(), layout=layout)
    model.start()
    for number in range(3 * (checkpoints + 1)):
        model.write(a_group(model, random, number))
        if number % 3 == 2 and number // 3 < checkpoints:
            model.checkpoint()
    return model


def first_start(states: CrashStates, random: Random) -> None:
    """On new disks, until they are known to be new; and the first group."""
    model = Model(SimFileSystem(), layout=tiny(random.randrange(1, 4), random.randrange(1, 4)))
    with CrashJudge(states, model).watching():
        model.start()
        model.write(a_group(model, random, 0))


def start_again(states: CrashStates, random: Random) -> None:
    """After a kill, mostly with something to replay, and once more right away."""
    model = lived(a_layout(random), random, random.randrange(3))
    with CrashJudge(states, model).watching():
        model.restart()
        model.restart()


def roll(states: CrashStates, random: Random) -> None:
    """Groups only, every third of which begins a journal file."""
    model = lived(tiny(1 + (not random.randrange(4)), 1), random, 0)
    with CrashJudge(states, model).watching():
        for number in range(9):
            model.write(a_group(model, random, number))


def lost_journal(states: CrashStates, random: Random) -> None:
    """As rolls; and behind the power cut one of the journal files is gone, which has to be noticed."""
    model = lived(tiny(1 + (not random.randrange(4)), 1), random, 0)
    judge = CrashJudge(states, model)

    def look() -> None:
        for image in model.files.crash_images(random, 3):
            path = random.choice([path for path in image.names_now if path.endswith(".txn")])
            image.delete(path)
            image.sync_dir(path.rpartition("/")[0])
            judge.judge_loss(image)

    model.files.before_step = look
    for number in range(9):
        model.write(a_group(model, random, number))


def checkpoint(states: CrashStates, random: Random) -> None:
    """Checkpoints of one to three directories, which delete the journals behind them."""
    model = lived(tiny(1 + (not random.randrange(4)), random.choice((1, 2, 2, 3))), random, 0)
    with CrashJudge(states, model).watching():
        for number in range(5):
            model.checkpoint()
            model.write(a_group(model, random, number))


def laps(states: CrashStates, random: Random) -> None:
    """Groups and checkpoints until journal files are written again, and through two laps of them."""
    model = lived(tiny(1 + (not random.randrange(4)), 1), random, 0)
    judge = CrashJudge(states, model)
    for number in range(30):
        if number == 12:
            model.files.before_step = judge.look
        model.write(a_group(model, random, number))
        if random.randrange(4):
            model.checkpoint()
    again = sum(
        operation == "rename" and path.endswith(PREPARED) for operation, path in model.files.log
    )
    assert again > 2, "they are written again"


def snapshot(states: CrashStates, random: Random) -> None:
    """As checkpoints, of indexes that are written anew whenever their deltas have outgrown them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index_directory, "_SNAPSHOT_AT_BYTES", 0)
        checkpoint(states, random)


def replay(states: CrashStates, random: Random) -> None:
    """More to replay than the cache holds, so that a start checkpoints on its way."""
    model = lived(
        tiny(1 + (not random.randrange(4)), 2, cache_bytes=1500), random, random.randrange(2)
    )
    for number in range(3):
        model.write(a_group(model, random, number))
    with CrashJudge(states, model).watching():
        model.restart()


def deletion(states: CrashStates, random: Random) -> None:
    """A start behind a power cut within a checkpoint: logs and journals that nobody needs go."""
    # With a small cache the replay checkpoints on its way: then one directory is ahead of the rest.
    cache_bytes = random.choice((200, 64 * 1024))
    model = lived(tiny(1, 2, cache_bytes), random, 1)
    for number in range(random.choice((0, 4))):
        model.write(a_group(model, random, number))
    rehearsed = model.files.twin()
    begin = model.files.steps
    plan = model.storage.contents.begin_checkpoint()
    assert plan is not None
    model.files.crash_at = begin + random.randrange(3, 16)
    with suppress(SimulatedCrash):
        model.storage.checkpoints.write(plan)
    assert rehearsed.digest() != model.files.crash(random, lambda _: "keep").digest()
    model.files = model.files.crash(random, lambda rng: rng.choice(("keep", "keep", "drop")))
    with CrashJudge(states, model).watching():
        model.start()


def kill(states: CrashStates, random: Random) -> None:
    """A killed process leaves what it has not synced to the next one, whose start is cut off."""
    model = lived(a_layout(random), random, random.randrange(2))
    judge = CrashJudge(states, model)

    def die() -> None:
        if random.randrange(5):
            return
        files = model.files.twin()
        files.before_step = lambda: judge.look_at(files)
        model.open(files).close()
        judge.look_at(files)

    model.files.before_step = die
    for number in range(4):
        model.write(a_group(model, random, number))
        if number % 2:
            model.checkpoint()


def kept(states: CrashStates, random: Random) -> None:
    """As a kill, and one directory is in doubt though it has lost nothing: so nothing may be lost."""
    model = lived(a_layout(random), random, random.randrange(2))

    def look(files: SimFileSystem) -> None:
        for image in states.of(files, model.promised):
            storage = model.open(image)
            when = f"steps={model.files.steps}"
            model.check(storage, when)
            assert storage.contents.is_damaged, f"{when}: the doubt is forgotten"
            assert all(facts.is_limbo for facts in storage.contents.ledgers.values()), when
            storage.close()

    def die() -> None:
        # Always where an entry log is written and not synced: its checkpoint is not committed.
        if not model.files.log[-1][1].endswith(".log") and random.randrange(6):
            return
        files = model.files.twin()
        mark_doubtful(files, random.choice(model.layout.directories))
        files.before_step = lambda: look(files)
        model.open(files).close()
        look(files)

    model.files.before_step = die
    for number in range(4):
        model.write(a_group(model, random, number))
        if number % 2:
            model.checkpoint()


def cut_twice(states: CrashStates, random: Random) -> None:
    """The power goes within anything, and again within the start behind that."""
    model = lived(a_layout(random), random, random.randrange(2))
    judge = CrashJudge(states, model)
    judge.is_recovery_cut = True

    def look() -> None:
        if not random.randrange(16):
            judge.look()

    model.files.before_step = look
    for number in range(4):
        model.write(a_group(model, random, number))
        if number % 2:
            model.checkpoint()
    model.restart()


def damage(states: CrashStates, random: Random) -> None:
    """A start on damaged disks, until all is in limbo that may have lost something, and after it."""
    model = lived(a_layout(random), random, 1 + random.randrange(2))
    files = model.files = model.files.copy()
    # An unused file of the journal may be all zero, and then there is nothing to damage.
    paths = [path for path in sorted(files.names_now) if any(files.content(path))]
    path = random.choice([path for path in paths if not path.endswith(".log")])
    content = files.content(path)
    written = len(content.rstrip(b"\0"))
    match random.randrange(3):
        case 0:
            content[random.randrange(written)] ^= 1 << random.randrange(8)
        case 1:
            del content[random.randrange(written) :]
        case _:
            files.delete(path)
            files.sync_dir(path.rpartition("/")[0])
    model.files = files.copy()
    judge = CrashJudge(states, model)
    judge.may_lack, model.is_answered = True, False
    with judge.watching():
        model.storage = model.open(model.files)
        # As the bookie does, with what the metadata says.
        limbo = {*model.entries, *model.keys, *model.storage.contents.ledgers}
        model.storage.contents.set_limbo(limbo)
        model.storage.checkpoint_now()
        model.limbo = limbo
        for number in range(2):
            model.write(a_group(model, random, number))
        model.restart()


def sealed(states: CrashStates, random: Random) -> None:
    """A start that writes nothing, on what a killed process left; what it answered for must last."""
    model = lived(a_layout(random), random, random.randrange(2))
    judge = CrashJudge(states, model)

    def seal() -> None:
        if random.randrange(3):
            return
        files = model.files.twin()
        files.before_step = lambda: judge.look_at(files)
        before = {path: bytes(inode.cached) for path, inode in files.names_now.items()}
        overlay = OverlayFileSystem(files, PLENTY)
        storage = model.open(overlay)
        judge.check(storage)
        answered = facts_of(storage)
        storage.close()
        overlay.close()
        files.before_step = None
        assert {operation for operation, _ in files.log} <= {"sync", "sync_dir"}
        assert {path: bytes(inode.cached) for path, inode in files.names_now.items()} == before
        for image in files.crash_images(random, 2):
            if judge.is_news(image):
                assert facts_of(model.open(image)) == answered, "what was answered for lasts"

    model.files.before_step = seal
    for number in range(4):
        model.write(a_group(model, random, number))
        if number % 2:
            model.checkpoint()


def replacing(states: CrashStates, random: Random) -> None:
    """Entries rest in logs and rot there; some are replaced, checkpointed, replaced once more."""
    model = lived(tiny(1, random.choice((1, 2))), random, 0)
    model.write([MasterKey(9, bytes(20)), Add(run_of(9, range(6), size=200))])
    model.checkpoint()
    rot(model, random)
    plan = model.storage.contents.plan_read(9, 0, 5, size_bytes_max=READ_SIZE)
    spans = model.storage.execute(plan).of(Presence.DAMAGED)
    broken = [entry_id for first, last in spans for entry_id in range(first, last + 1)]
    for entry_id in broken:
        # Not promised any more until it is replaced: nobody can read it.
        model.sent[9][entry_id] = {model.entries[9].pop(entry_id)}
    with CrashJudge(states, model).watching():
        model.write([Replace(run_of(9, broken[:1], size=200, salt=1))])
        model.checkpoint()
        model.write([Replace(run_of(9, broken, size=200, salt=2)), Fence(9)])
        model.restart()
        model.write([Add(run_of(9, range(6, 8), size=40))])
        model.checkpoint()


def rot(model: Model, random: Random) -> None:
    """A bit of one block of ledger 9 changes on the disk."""
    marker = f"9/{random.randrange(6)}/0:".encode()
    for path in model.files.names_now:
        if path.endswith(".log") and marker in (content := model.files.content(path)):
            content[content.index(marker)] ^= 1
