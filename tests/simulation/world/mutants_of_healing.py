"""Known bugs of auditor, menders and bookies that get back what they lost, planted under whole clusters."""

from __future__ import annotations

from bookie_server.core.damaged_entries import DamagedEntries
from bookie_server.core.shares import Share, ends_of
from bookie_server.integrity.integrity_check import IntegrityCheck
from bookie_server.reads.reader import Reader
from spark_bookkeeper.ledger.protocol.recovery_adds import RecoveryAdds
from spark_bookkeeper.replication.auditor import Auditor
from spark_bookkeeper.replication.copying import LedgerCopier
from spark_bookkeeper.replication.lost_bookies import LostBookies
from spark_bookkeeper.replication.mending import LedgerMender
from tests.simulation.kit.patching import Mutants

MUTANTS = Mutants()
mutant = MUTANTS.planted

mutant(
    "named_before_copied", "the metadata names a bookie whose copies are not made yet", "I22"
).edit(LedgerMender._replace, {"await copier.copy(share, target)": "0"})

mutant(
    "last_window_left_out",
    "the end of a share is not copied ",
    "I22",
    "L8",
).edit(LedgerCopier.copy, {"while first <= share.last_entry": "while first < share.last_entry"})

mutant(
    "open_fragment_is_complete",
    "the last fragment of an open ledger is anybody's to change, as far as it is acknowledged",
    "I2", "I14", "I15", "I17", "I19", "I22", "L3", "L8", "P",
).edit(ends_of, {"[*ends, metadata.last_entry] if metadata.is_closed else ends": "[*ends, metadata.last_entry]"})  # fmt: skip

_LACKS = "if any(share.lacks(held) for share in own)"
mutant(
    "limbo_ends_unread", "a bookie leaves limbo without a look at what it has", "I12", "S2", "L8"
).edit(IntegrityCheck._can_read, {"if not verified.is_sound": "if False"}).edit(
    IntegrityCheck._look_at, {_LACKS: "if False"}
)

mutant(
    "limbo_of_open_ends", "limbo of a ledger that is not closed ends, too", "I12", "S2", "I1"
).edit(IntegrityCheck._look_at, {"if metadata.is_closed:": "if True:"})

mutant("limbo_for_good", "a bookie that has everything again stays in limbo", "L8").edit(
    IntegrityCheck._look_at, {"self._complete[ledger_id] = metadata": "pass"}
)

mutant("limbo_passed_over", "a bookie in limbo is sent nothing, since it may have all", "L8").edit(
    LedgerMender._mend_share,
    {"listed.status not in SAYS_WHAT_IS_WANTED": "listed.status.name == 'LIMBO'"},
)

mutant("damage_is_listed", "a list of entries names those that cannot be read", "L8").edit(
    Reader.list_entries, {"if each not in damaged": "if True"}
)

mutant("damage_is_forgotten", "what cannot be read is not kept in mind", "L8").edit(
    DamagedEntries.add, {"if kept:": "if False:"}
)

mutant("lost_alone_is_not_lost", "a single bookie that is lost is waited for, for ever", "L8").edit(
    LostBookies._plan, {"elif self._planned is None or self._planned.lost != new": "else"}
)

mutant("nobody_asks", "copies that a writer left out are looked for by nobody", "L8").edit(
    Auditor._check_periodically, {"await self._is_due(check, interval_ms)": "False"}
)

mutant(
    "copies_are_a_writers", "copies are sent as a writer's adds, which a fence refuses", "L1", "L8"
).edit(RecoveryAdds.__init__, {"is_recovery=True": "is_recovery=False"})

mutant(
    "stripe_of_the_neighbour", "a striped bookie gets what its neighbour should hold", "I22", "L8"
).edit(
    Share.entry_ids,
    {
        "self.stripe.select(": "__import__('dataclasses').replace(self.stripe, index=(self.stripe.index + 1) % self.stripe.ensemble_size).select("
    },
)
