"""What a client of the cluster may tune; every default says where it comes from."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from bookie_server.client.settings import ConnectionSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """Numbers of one :class:`spark_bookkeeper.BookKeeper`; validated on construction."""

    max_in_flight_bytes: int = 64 * 1024 * 1024
    """Payload bytes a writer holds that some bookie has not answered for. An append waits beyond
    it, so a writer's memory is this plus a small constant."""
    max_in_flight_entries: int = 100_000
    """Appended entries not acknowledged yet; bounds what tiny entries cost."""
    read_size_bytes: int = 1024 * 1024
    """Asked of a bookie at once. One message of this size costs the CPU of one of 1 KiB."""
    reads_in_flight: int = 4
    """Requests a sequential read keeps going ahead of its consumer."""
    metadata_timeout_ms: int = 10_000
    """Longest wait for the metadata service (Apache's ``zkTimeout``)."""
    recovery_window_entries: int = 1_000
    """Entries a recovery asks for at once beyond the LAC: about what writers keep in flight."""
    connection: ConnectionSettings = field(default_factory=ConnectionSettings)
    """Per-bookie time limits and frame sizes."""

    def __post_init__(self) -> None:
        wrong = [
            f"{spec.name}={value}"
            for spec in fields(self)
            if isinstance(value := getattr(self, spec.name), int) and value <= 0
        ]
        if wrong:
            raise ValueError(f"client settings must be positive: {', '.join(wrong)}")
