"""What every crash state has to stand: a start, a look at all there is, and a start behind it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from itertools import chain

from bookie_server.storage.engine import Storage
from bookie_server.storage.logs.entry_log import file_name as log_name
from tests.simulation.kit.crash_states import CrashStates
from tests.simulation.kit.files import SimFileSystem
from tests.simulation.kit.storage_model import Model


class CrashJudge:
    """Judges every crash state of one model's disks, each once."""

    def __init__(self, states: CrashStates, model: Model) -> None:
        self.states = states
        self.model = model
        self.may_lack = False
        """Something was damaged: what is gone may be missing, but is never denied."""
        self.is_recovery_cut = False
        """The power goes a second time, at every moment of the start behind the first."""
        self._is_torn = False
        """The second power cut follows one that tore a sector."""

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Judge what a power loss would leave before any step within, and behind the last one."""
        files = self.model.files
        files.before_step = self.look
        try:
            yield
        finally:
            files.before_step = None
        self.look()

    def look(self) -> None:
        """Judge what a power loss would leave now."""
        self.look_at(self.model.files)

    def look_at(self, files: SimFileSystem) -> None:
        """Judge what a power loss would leave of another copy of the model's disks."""
        for image in self.states.of(files, self._promised):
            self._judge(image)

    def judge_loss(self, image: SimFileSystem) -> None:
        """Judge a state from which a file was taken: what it held may be gone, and is not denied."""
        if self.is_news(image):
            storage = self.model.open(image)
            self.model.check(storage, f"steps={self.model.files.steps}", may_lack=True)
            storage.close()

    def is_news(self, image: SimFileSystem) -> bool:
        return self.states.is_news(image, self._promised)

    @property
    def _promised(self) -> object:
        return self.model.is_answered, self.model.promised

    def _judge(self, image: SimFileSystem) -> None:
        """A start, and another one behind a power cut right at its end."""
        if self.is_recovery_cut:
            self._cut_recovery(image)
        is_torn = self._is_torn or image.is_torn
        storage = self.model.open(image)
        self.check(storage, is_torn)
        # Behind damage rows are told by the logs, which know nothing of drops.
        unsure = {*self.model.drops, *self.model.dropping} if storage.recovery.damage else ()
        first = facts_of(storage, unsure)
        storage.close()
        # Most states have become the same by then.
        again = image.crash(self.states.random, lambda _: "drop")
        if self.is_news(again):
            storage = self.model.open(again)
            self.check(storage, is_torn)
            assert facts_of(storage, unsure) == first, "a second start finds what the first one did"
            storage.close()

    def _cut_recovery(self, image: SimFileSystem) -> None:
        cut = image.twin()
        self.is_recovery_cut, self._is_torn = False, image.is_torn
        cut.before_step = lambda: self.look_at(cut)
        self.model.open(cut).close()
        self.is_recovery_cut, self._is_torn = True, False

    def check(self, storage: Storage, is_torn: bool = False) -> None:
        """Nothing is lost, denied, invented or left lying about."""
        contents, files = storage.contents, storage.files
        when = f"steps={self.model.files.steps} is_torn={is_torn}"
        self.model.check(storage, when, may_lack=self.may_lack)
        if storage.recovery.is_new:
            assert contents.is_damaged, f"{when}: emptied disks would deny everything"
        if is_torn or self.may_lack:
            return
        # A disk writes whole sectors: an ordinary power loss is never taken for damage.
        assert storage.recovery.damage == [], when
        in_limbo = {ledger_id for ledger_id, facts in contents.ledgers.items() if facts.is_limbo}
        assert in_limbo <= self.model.limbo, when
        assert not (self.model.is_answered and contents.is_damaged), when
        for path in self.model.layout.journal_directories:
            assert [name[16:] for name in files.names(path)] == [".txn"], f"{when}: journals"
        for index in storage.checkpoints._indexes:
            named = {log_name(each) for rows in index.rows.values() for each in rows.log_ids()}
            assert set(files.names(index.directory)) == {"index", *named}, f"{when}: leftovers"


def facts_of(storage: Storage, unsure: Collection[int] = ()) -> object:
    """What a storage knows, to compare two starts, but for the entries of the ``unsure`` ledgers."""
    facts = {
        ledger_id: (f.master_key, f.is_fenced, f.is_limbo, f.last_add_confirmed, f.explicit_lac)
        for ledger_id, f in storage.contents.ledgers.items()
    }
    entries = {
        ledger_id: list(chain(*storage.contents.entry_ids(ledger_id)))
        for ledger_id in storage.contents.ledgers
        if ledger_id not in unsure
    }
    return facts, entries, list(storage.contents.tombstones), storage.contents.is_damaged
