"""What a client of the cluster may tune; every default says where it comes from."""

from __future__ import annotations

from dataclasses import dataclass, field

from bookie_server.client.settings import AUTO, BOOKIE_PROTOCOLS, ConnectionSettings
from bookkeeper_metadata.foundation.settings import setting
from bookkeeper_metadata.store.zookeeper_settings import ZooKeeperSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings(ZooKeeperSettings):
    """Of one :class:`spark_bookkeeper.BookKeeper`; validated on construction."""

    max_in_flight_bytes: int = 64 * 1024 * 1024
    """Payload bytes a writer holds that some bookie has not answered for. An append waits beyond
    it, so a writer's memory is this plus a small constant."""
    max_in_flight_entries: int = 100_000
    """Appended entries not acknowledged yet; bounds what tiny entries cost."""
    read_size_bytes: int = setting(2 * 1024 * 1024, maximum=64 * 1024 * 1024)
    """Most bytes asked of a bookie at once, which gives no more than 2 MiB. A message costs much the same CPU whatever its
    size. A reader has up to `reads_in_flight` of them in memory, and up to three times that where entries become larger
    suddenly. While answers are late, less is asked for."""
    reads_in_flight: int = 4
    """Requests a sequential read keeps going ahead of its consumer."""
    speculative_read_timeout_ms: int = setting(1_000, minimum=0)
    """How long a replica may keep a reader waiting before the next is asked too; 0: never. Shorter
    sends more reads twice when bookies are merely busy, or the network brings less than
    `reads_in_flight` times `read_size_bytes` meanwhile. Half of Apache's 2 s, which allow for a
    Java collector's pause; a cold read of 1 MiB takes a tenth of it."""
    long_poll_timeout_ms: int = 1_000
    """How long a bookie holds the question for news back; also how long a tail may trust a bookie
    that has fallen silent or behind. An idle tail costs one message a period."""
    explicit_lac_interval_ms: int = setting(1, minimum=0)
    """A writer at rest for this long sends the bookies its last add confirmed, which otherwise only
    its next entry carries; 0: off. Tailing readers wait for it; shorter sends more small messages.
    One with entries in flight gives their acknowledgements ten times as long, and one that rests between all of its
    entries does not wait."""
    metadata_timeout_ms: int = 10_000
    """Longest wait for a connection to the metadata service and for each of its answers, and the session's
    time limit (Apache's ``zkTimeout``). Longer rides out longer outages of it, with tasks of Spark's that
    need a new ledger; shorter fails sooner."""
    add_quorum_timeout_ms: int = setting(0, minimum=0)
    """Longest an add may wait for its ack quorum; then the writer ends and closes the ledger at its
    last acknowledged entry. 0: no limit beyond each bookie's own (Apache's default is off too)."""
    bookie_quarantine_ms: int = 30_000
    """How long writers avoid a bookie that failed one of them. Apache: 30 minutes, by count."""
    ensemble_change_timeout_ms: int = 30_000
    """Longest a writer waits for the metadata service to decide about an ensemble change; then it
    ends, for it cannot know from which bookies its entries would be read."""
    bookie_wait_timeout_ms: int = setting(60_000, minimum=0)
    """How long a new ledger waits for bookies that are known but away, where too few are writable to
    acknowledge its entries, and how long a writer that has lost its ack quorum; its appends wait
    unacknowledged. Longer rides out longer outages; shorter fails sooner; 0: at once."""
    min_write_quorum: int = setting(0, minimum=0)
    """Writable bookies that each entry of a new ledger must have from the start, where some of its
    bookies are away; never fewer than the ack quorum. More: fewer entries that one copy more would
    lose, but a bookie less stops new ledgers."""
    ensemble_change_retry_ms: int = 5_000
    """How often a writer that could not replace a bookie looks for an available one."""
    recovery_window_entries: int = 4_000
    """Entries a recovery asks for at once beyond the LAC, as far as they fit a reply: more than
    writers keep in flight."""
    bookie_protocol: str = setting(AUTO, one_of=tuple(BOOKIE_PROTOCOLS))
    """What carries requests to bookies: `auto`, plain sockets, gRPC to those that offer none, and Apache's protocol to
    bookies of Apache's; `grpc`, the messages of the sockets at one and a half times the CPU; or Apache's protocol to all that offer
    it, with adds and plain reads in version 2 (`v2`) or with everything in version 3 (`v3`)."""
    connection: ConnectionSettings = field(default_factory=ConnectionSettings)
    """Per-bookie time limits and frame sizes."""
