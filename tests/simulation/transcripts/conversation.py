"""Golden transcripts: commands to one machine, each followed by its full printed effects.

A file under ``tests/golden/transcripts`` is a sequence of ``> command`` lines; what stands between
two of them is what the machine answered. :func:`retell` runs the commands again and returns the
file as it should read: order and completeness of effects are the point, so nothing is left out.

Writer: ``writer 3/3/2``, ``append a bb`` (entries), ``answer b1 0 OK`` (bookie, first entry of the
run; ``@n`` for an answer to an older ensemble), ``changed b0 b3 b2`` (the metadata has it),
``changed nobody``, ``retry``, ``seal``, ``end fenced``. Bookie: ``bookie``, ``add w 0 1`` (who asks,
entries; ``recovery add``), ``fence r``, ``settle r``, ``sync`` (the oldest group is durable),
``fail`` (it is not), ``pending 0 1``.

Recovery: ``recovery 3/3/2`` (of a ledger that b0 b1 b2 hold; b3 and b4 are there, too), ``begin``,
``lac b0 1`` (the LAC in its last entry; ``empty``, or a status), ``read b0 2 3`` (it has these, and
denies the others asked for; or a status), ``stored b0 OK``. Spark: ``spark``, ``plan A q 0`` (driver,
query, batch), ``task A 1 2`` (driver, partition, rows), ``commit A``, ``sweep A``, ``lose multi`` (the
reply to the next one). Lines beginning with ``#`` are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tests.simulation.transcripts.desk import Desk, Lines
from tests.simulation.transcripts.machines import BookieDesk, WriterDesk
from tests.simulation.transcripts.recovery import RecoveryDesk
from tests.simulation.transcripts.spark import SparkDesk

MACHINES: Mapping[str, Callable[[list[str]], Desk]] = {
    "writer": WriterDesk,
    "bookie": BookieDesk,
    "recovery": RecoveryDesk,
    "spark": SparkDesk,
}


def retell(text: str) -> str:
    """The transcript with every answer as the product gives it now."""
    lines: Lines = []
    machine: Desk | None = None
    try:
        for line in text.splitlines():
            if line.startswith("#"):
                lines.append(line)
            elif line.startswith("> "):
                lines += ["", line] if lines and not lines[-1].startswith("#") else [line]
                name, *words = line[2:].split()
                if machine is None:
                    machine = MACHINES[name](words)
                else:
                    lines += machine.perform(name, words) or ["nothing"]
    finally:
        if machine is not None:
            machine.close()
    return "\n".join(lines) + "\n"
