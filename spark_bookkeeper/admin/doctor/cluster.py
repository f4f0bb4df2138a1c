"""What is the matter with a cluster: its facts are read once, and then judged."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import SystemRandom
from typing import Any

from bookkeeper_metadata.cluster import instance_id
from bookkeeper_metadata.cookies import CookieStore
from bookkeeper_metadata.election import elected_auditor
from bookkeeper_metadata.errors import MetadataCorruptError
from bookkeeper_metadata.underreplication import Underreplication
from spark_bookkeeper.admin.bookies import describe_bookies
from spark_bookkeeper.admin.doctor.findings import Finding, good, problem, warning
from spark_bookkeeper.ledger.client import LedgerClient
from spark_bookkeeper.ledger.protocol.quorum import QuorumConfig

CLOCK_WARNING_MS = 2_000
CLOCK_PROBLEM_MS = 60_000
"""Garbage is kept, jobs and cursors expire by the clock of whoever looks, against times that others wrote."""
SLOW_ANSWER_MS = 500
FREE_PERCENT_MIN = 10
_CLOCK_NODE = "-clock-"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    """What was read, and when."""

    instance_id: str | None
    sync_ms: float
    """How long the metadata service took to answer."""
    clock_ms: int
    """How far this machine's clock is ahead of the metadata service's."""
    bookies: list[dict[str, Any]]
    """As ``describe_bookies`` says."""
    without_cookie: list[str]
    """Bookies that are registered, and have no cookie."""
    doubtful_of_metadata: list[str] = field(default_factory=list)
    """Bookies whose disks have counted further than this metadata: it is a restored copy."""
    marked_count: int
    is_healing_enabled: bool
    auditor: str | None
    quorums: QuorumConfig = field(default_factory=lambda: QuorumConfig(3, 3, 2))


async def read_facts(client: LedgerClient, quorums: QuorumConfig) -> ClusterFacts:
    """Ask metadata service and bookies; one ephemeral node is made and deleted, to see the service's clock.

    Raises:
        MetadataUnavailableError, MetadataCorruptError: the metadata cannot be read.
    """
    store, root = client.cluster.store, client.cluster.root
    begun_s = asyncio.get_running_loop().time()
    await store.sync(root)
    sync_ms = 1_000 * (asyncio.get_running_loop().time() - begun_s)
    marks = Underreplication(store, root, random=SystemRandom())
    cookie_store = CookieStore(store, root)
    cookies = set(await cookie_store.bookie_ids())
    bookies = await describe_bookies(client)
    return ClusterFacts(
        instance_id=await instance_id(store, root),
        sync_ms=sync_ms,
        clock_ms=await _clock_difference_ms(client),
        bookies=bookies,
        without_cookie=[each["bookie_id"] for each in bookies if each["bookie_id"] not in cookies],
        doubtful_of_metadata=[
            bookie_id for bookie_id in sorted(cookies) if await _doubts(cookie_store, bookie_id)
        ],
        marked_count=len([each async for each in marks.list_marked_ledgers()]),
        is_healing_enabled=await marks.is_enabled(),
        auditor=await elected_auditor(store, root),
        quorums=quorums,
    )


async def _doubts(cookies: CookieStore, bookie_id: str) -> bool:
    """Whether the bookie takes the metadata for a restored copy; no, where its counter cannot be read."""
    try:
        counter = (await cookies.read(bookie_id)).counter
    except (MetadataCorruptError, ValueError):
        return False
    return counter is not None and counter.is_metadata_older


async def _clock_difference_ms(client: LedgerClient) -> int:
    store = client.cluster.store
    before_ms = time.time_ns() // 1_000_000
    path = await store.sequence(client.cluster.root + _CLOCK_NODE, b"", ephemeral=True)
    node = await store.get(path)
    after_ms = time.time_ns() // 1_000_000
    await store.delete(path)
    return ahead_ms(before_ms, node.created_ms, after_ms) if node is not None else 0


def ahead_ms(before_ms: int, made_ms: int, after_ms: int) -> int:
    """How far a clock is ahead at least of another, by which something was made between the two looks at it."""
    if made_ms < before_ms:
        return before_ms - made_ms
    return min(after_ms - made_ms, 0)


def judge_cluster(facts: ClusterFacts) -> list[Finding]:
    """What the facts say."""
    return [
        *_metadata_service(facts),
        *_bookies(facts),
        *_restored(facts),
        *_limbo(facts),
        *_disks(facts),
        *_quorums(facts),
        *_healing(facts),
    ]


def _metadata_service(facts: ClusterFacts) -> Iterator[Finding]:
    found = f"instance {facts.instance_id}, answers within {facts.sync_ms:.0f} ms"
    if facts.sync_ms > SLOW_ANSWER_MS:
        yield warning(
            "metadata service",
            found,
            "look after ZooKeeper's disk and load: every creation and close of a ledger waits for it",
        )
    else:
        yield good("metadata service", found)
    ahead = facts.clock_ms
    found = f"{abs(ahead)} ms {'ahead of' if ahead > 0 else 'behind'} the metadata service's"
    advice = "let NTP set the clocks of all hosts: retention and expiry go by them"
    if abs(ahead) >= CLOCK_PROBLEM_MS:
        yield problem("clock", found, advice)
    elif abs(ahead) >= CLOCK_WARNING_MS:
        yield warning("clock", found, advice)
    else:
        yield good("clock", found)


def _bookies(facts: ClusterFacts) -> Iterator[Finding]:
    for bookie in facts.bookies:
        subject, state = f"bookie {bookie['bookie_id']}", bookie["state"]
        if state == "away":
            yield warning(
                subject,
                "away: it has a cookie, and no process is registered under its id",
                "start it again; if it is lost for good, run auto-recovery (or `bookkeeper bookies "
                "recover`), and then `bookkeeper cookies delete`",
            )
        elif not bookie["answers"]:
            yield problem(
                subject,
                f"{state}, and does not answer at {bookie['address']}",
                "see its /healthz and its log: it is stuck, the network between is cut, or it refuses who asks, and then says so in its log",
            )
        elif bookie["bookie_id"] in facts.without_cookie:
            yield problem(
                subject,
                "registered without a cookie: an auditor would not miss it",
                "restart it, which writes its cookie again",
            )
        elif state == "readonly":
            by_hand = "somebody made it so: `bookkeeper bookies writable` takes that back"
            by_disk = "its disk is full: delete logs, or give it room"
            advice = by_hand if bookie["readonly_by"] == "hand" else by_disk
            yield warning(subject, f"read-only by {bookie['readonly_by']}", advice)
        else:
            yield good(subject, f"writable, {bookie['ledger_count']} ledgers")
    versions = sorted({each["version"] for each in facts.bookies if each["version"]})
    if len(versions) > 1:
        yield warning("versions", f"bookies run {', '.join(versions)}", "finish the upgrade")


def _restored(facts: ClusterFacts) -> Iterator[Finding]:
    for bookie_id in facts.doubtful_of_metadata:
        yield warning(
            f"metadata for {bookie_id}",
            "a restored copy, older than the bookie's disks: it deletes nothing for its sake",
            "see which ledgers are missing, skip the ids that were given out since, and then "
            "`bookkeeper cookies accept`",
        )


def _limbo(facts: ClusterFacts) -> Iterator[Finding]:
    for bookie in facts.bookies:
        if bookie["limbo_count"]:
            yield warning(
                f"limbo on {bookie['bookie_id']}",
                f"it may have lost something of {bookie['limbo_count']} ledgers",
                "nothing for those that are closed: auto-recovery copies what is missing; recover those whose writers are gone",
            )


def _disks(facts: ClusterFacts) -> Iterator[Finding]:
    for bookie in facts.bookies:
        total, free = bookie["disk_total_bytes"], bookie["disk_free_bytes"]
        if total and 100 * free < FREE_PERCENT_MIN * total:
            yield warning(
                f"disk of {bookie['bookie_id']}",
                f"{100 * free // total} % free",
                "delete logs or truncate them, add a bookie, or give it a larger disk",
            )


def _quorums(facts: ClusterFacts) -> Iterator[Finding]:
    writable = sum(each["state"] == "writable" and each["answers"] for each in facts.bookies)
    quorums = facts.quorums
    found = (
        f"{writable} writable bookies that answer, for {quorums.ensemble_size}/{quorums.write_quorum}/"
        f"{quorums.ack_quorum} (ensemble, write and ack quorum)"
    )
    if writable < quorums.ack_quorum:
        yield problem("quorums", found, "nothing can be written: start or add bookies")
    elif writable < quorums.write_quorum:
        yield warning("quorums", found, "new entries have fewer copies than wanted: add bookies")
    elif writable == quorums.ensemble_size:
        yield warning(
            "quorums", found, "none is to spare: what one loses nobody can take over; add a bookie"
        )
    else:
        yield good("quorums", found)


def _healing(facts: ClusterFacts) -> Iterator[Finding]:
    found = f"{facts.marked_count} ledgers are marked for want of copies"
    if not facts.is_healing_enabled:
        yield warning(
            "auto-recovery", f"disabled; {found}", "`bookkeeper autorecovery enable` lets it go on"
        )
    elif facts.auditor is None:
        level = problem if facts.marked_count else warning
        yield level(
            "auto-recovery",
            f"no auditor is elected; {found}",
            "run `bookkeeper autorecovery` on one host or more: without it nothing heals",
        )
    elif facts.marked_count:
        yield warning(
            "auto-recovery",
            f"{found}; auditor {facts.auditor}",
            "`bookkeeper underreplicated list` says which; the log of auto-recovery why they wait",
        )
    else:
        yield good("auto-recovery", f"auditor {facts.auditor}, nothing lacks a copy")
