"""Known bugs of full disks and read-only bookies, planted in the product under whole clusters."""

from __future__ import annotations

from bookie_server.checkpoint_loop import CheckpointLoop
from bookie_server.core import space
from bookie_server.core.admission import Admission
from bookie_server.core.space import Space
from bookie_server.registrar import Registrar
from bookie_server.space.watch import SpaceWatch
from bookie_server.storage.checkpoint import Checkpoints
from bookie_server.storage.disk.overlay import OverlayFile
from bookie_server.storage.recovery import recover
from bookkeeper_metadata.bookies import BookieRegistry
from spark_bookkeeper.ledger.protocol.writer_state import WriterState
from tests.simulation.kit.patching import Mutants

MUTANTS = Mutants()
mutant = MUTANTS.planted

mutant("fence_refused_when_full", "a bookie that takes no adds takes no fences either", "S9").edit(
    Admission.fence, {"self._mode() > Mode.FULL": "self._mode() > Mode.READ_ONLY"}
)

mutant(
    "add_on_the_recovery_reserve", "an ordinary add may use what is kept for recoveries", "S8"
).edit(Admission.add, {"if section.is_recovery else Mode.WRITABLE": "if True else Mode.WRITABLE"})

mutant(
    "recovery_add_on_the_fences_reserve", "a recovery's add may use what is kept for fences", "S8"
).edit(Admission.add, {"(Mode.READ_ONLY if section": "(Mode.FULL if section"})

mutant("read_only_for_good", "a bookie that was full once never takes entries again", "L4").edit(
    space.next_mode, {"min(mode, reached)": "mode"}
)

mutant(
    "no_hysteresis", "a bookie changes its mind at one and the same limit, both ways", "S8"
).edit(
    space.next_mode,
    {"free_bytes >= limits.writable_above_bytes": "free_bytes >= limits.read_only_below_bytes"},
)

mutant(
    "read_only_registered_writable",
    "a bookie that takes no entries stays registered among those that do",
    "L5",
).edit(Registrar.set_readonly, {"self._wanted = is_readonly": "pass"})

mutant(
    "readonly_counts_as_writable",
    "clients choose among all that are registered, read-only ones too",
    "I25",
).edit(
    BookieRegistry.writable,
    {
        "await self._read(self._paths.available)": (
            "{**await self._read(self._paths.available), **await self._read(self._paths.readonly)}"
        )
    },
)

mutant(
    "by_hand_not_heard", "somebody makes a bookie read-only, and it goes on taking entries", "S8"
).edit(Space.mode, {"if self.is_readonly_by_hand": "if False"})

mutant(
    "without_room_counts_as_written",
    "a checkpoint that found no room counts as written",
    "I12",
    "I2",
    "S2",
).edit(
    Checkpoints._write_directory,
    {'{log_name(last_log_id)}")\nraise': '{log_name(last_log_id)}")\nreturn {}'},
)

mutant(
    "no_room_for_good",
    "a bookie whose checkpoint once found no room takes no entries any more",
    "L4",
).edit(CheckpointLoop._on_written, {"self._space.on_room()": "pass"})

mutant(
    "sealed_without_replay",
    "a start on a full disk reads no journal, and denies what only that holds",
    "S2",
    "I12",
).edit(
    recover,
    {
        "recovery.replay(contents, number, progress)": (
            "if type(files).__name__ != 'OverlayFileSystem':\n"
            "    recovery.replay(contents, number, progress)"
        )
    },
)

mutant("sealed_start_writes", "a start on a full disk writes into the files there", "S11").edit(
    OverlayFile.write_at,
    {
        "content, end = self._content, offset + len(written)": (
            "content, end = self._content, offset + len(written)\n"
            "if content.below is not None:\n"
            "    content.below.write_at(offset, [written])"
        )
    },
)

mutant("sealed_for_good", "a bookie that started on a full disk never looks again", "L4").edit(
    SpaceWatch.wait_for_start, {"if least_bytes": "if False and least_bytes"}
)

mutant("read_only_is_stored", "a writer takes a refusal for want of room for a copy", "I17").edit(
    WriterState.on_section_answer,
    {"if status is Status.OK": "if status in (Status.OK, Status.READ_ONLY)"},
)

mutant("read_only_ends_the_writer", "one full bookie ends a writer that has others", "I26").edit(
    WriterState._on_bookie_failed,
    {"if status is Status.FENCED": "if status in (Status.FENCED, Status.READ_ONLY)"},
)
