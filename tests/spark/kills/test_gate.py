"""Each point of the protocol is one request, told from all others by what it changes."""

from __future__ import annotations

import pytest

from tests.metadata.zookeeper_relay import Part, Request, Sent
from tests.spark.kills.gate import Moment, Point, Trap

LOG = "/ledgers-logs/7"
LEDGER = "/ledgers/00/0000/L0042"
REQUESTS = {
    Point.PLAN: [(Request.CREATE, f"{LOG}/tokens/")],
    Point.CLAIM: [(Request.CREATE, f"{LOG}/jobs/q@0/0000000003")],
    Point.LEDGER: [
        (Request.CREATE, LEDGER),
        (Request.CHECK, f"{LOG}/tokens/0000000003"),
        (Request.CREATE, f"{LOG}/tokens/0000000003/0-1-42"),
    ],
    Point.CLOSE: [(Request.SET_DATA, LEDGER)],
    Point.CHUNK: [(Request.CREATE, f"{LOG}/chunks/0000000003-0")],
    Point.COMMIT: [
        (Request.SET_DATA, f"{LOG}/head"),
        (Request.SET_DATA, f"{LOG}/tokens/0000000003"),
        (Request.CREATE, f"{LOG}/txn/q"),
    ],
    Point.END_TOKEN: [(Request.SET_DATA, f"{LOG}/tokens/0000000003")],
    Point.DELETE_LEDGER: [(Request.DELETE, LEDGER)],
    Point.SWEEP: [
        (Request.DELETE, f"{LOG}/tokens/0000000003/0-1-42"),
        (Request.DELETE, f"{LOG}/tokens/0000000003"),
        (Request.DELETE, f"{LOG}/jobs/q@0/0000000003"),
        (Request.DELETE, f"{LOG}/jobs/q@0"),
    ],
    Point.SWEEP_CHILD: [(Request.DELETE, f"{LOG}/tokens/0000000003/0-1-42")],
    Point.SWEEP_TOKEN: [(Request.DELETE, f"{LOG}/tokens/0000000003")],
    Point.SWEEP_EPOCH: [(Request.DELETE, f"{LOG}/jobs/q@0/0000000003")],
    Point.SWEEP_JOB: [(Request.DELETE, f"{LOG}/jobs/q@0")],
    Point.FORGET_GARBAGE: [(Request.DELETE, f"{LOG}/garbage/0000000003")],
    Point.DELETE_CHUNK: [(Request.DELETE, f"{LOG}/chunks/0000000003-0")],
}


def sent(parts: list[tuple[Request, str]]) -> Sent:
    kind = parts[0][0] if len(parts) == 1 else Request.MULTI
    return Sent(kind, tuple(Part(*part) for part in parts))


@pytest.mark.parametrize("point", Point)
def test_a_request_is_named_by_its_point_and_no_other(point: Point) -> None:
    request = sent(REQUESTS[point])

    assert [each for each in Point if each.names(request)] == [point]


def test_a_jobs_first_claim_is_a_multi() -> None:
    parts = [(Request.CREATE, f"{LOG}/jobs/q@0"), *REQUESTS[Point.CLAIM]]

    assert [each for each in Point if each.names(sent(parts))] == [Point.CLAIM]


def test_a_trap_springs_at_its_moment_the_nth_time_and_once() -> None:
    trap = Trap(Point.CLOSE, Moment.REPLY, nth=2)
    close, claim = sent(REQUESTS[Point.CLOSE]), sent(REQUESTS[Point.CLAIM])

    met = [
        trap.meets(each, moment)
        for each in (close, claim, close, close)
        for moment in (Moment.REQUEST, Moment.REPLY)
    ]

    assert met == [False] * 5 + [True] + [False] * 2


def test_a_trap_behind_a_point_waits_for_the_reply_to_it() -> None:
    trap = Trap(Point.SWEEP_JOB, Moment.REQUEST, behind=Point.COMMIT)
    sweep, commit = sent(REQUESTS[Point.SWEEP_JOB]), sent(REQUESTS[Point.COMMIT])

    messages = [
        (sweep, Moment.REQUEST),
        (commit, Moment.REQUEST),
        (sweep, Moment.REQUEST),
        (commit, Moment.REPLY),
        (sweep, Moment.REQUEST),
    ]

    assert [trap.meets(*each) for each in messages] == [False] * 4 + [True]
