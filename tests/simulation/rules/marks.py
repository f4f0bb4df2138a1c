"""Interesting situations every campaign must have been in: a green run that never was proves nothing.

The model counts them as they happen (``Model.marks``); the test wants each at least
:data:`SEEN_MIN` times. One that is never counted here is a situation somebody removed unawares.
"""

from __future__ import annotations

SEEN_MIN = 20

MARKS = (
    # Ensemble change.
    "answer of a bookie replaced since", "change of ensemble in place",
    "change of ensemble, new fragment", "change of ensemble meets a recovery",
    "change tried again later", "failure after the last acknowledgement", "failure during a change",
    "member returns to its position", "nobody to replace a bookie with", "partial replacement",
    "writer gives up waiting", "writer runs out of bookies",
    # Fencing and admission.
    "explicit LAC says more than entries", "explicit LAC told",
    "add refused by a fence not yet durable", "add refused in limbo", "duplicate add waits",
    "fence of an unknown ledger", "late add refused by a fence", "read waits for what is pending", "repeated fence waits",
    "writer is fenced",
    # Recovery.
    "entries behind a gap given up", "entries written back",
    "entry decided before everybody answered", "recoverer adopts another end", "recoverer dies",
    "recovery aborts on what it cannot decide", "recovery finds nobody to write back to",
    "recovery gives up fencing", "recovery joined", "recovery writes back to another bookie",
    "window read while one is written back",
    # The end.
    "close meets a recovery", "writer closes", "zombie wakes up after the close",
    # Metadata.
    "change of metadata applied, reply lost", "change of metadata lost",
    "compare-and-set lost the race",
    # Faults.
    "copies damaged", "cut off", "disk lost", "held add let go",
    "power cut before a fence was durable", "power cut between sync and answer",
    "power cut loses what was not synced", "power cut when: add admitted",
    "power cut when: add answered", "power cut when: fence admitted",
    "power cut when: fence answered", "power cut when: fence durable",
    "power cut when: negative answered", "power cut when: restarted", "read-only",
    "unknown because absent", "unknown because damaged",
)  # fmt: skip
