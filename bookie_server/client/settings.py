"""Time limits and sizes of a client's connection to a bookie."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bookie_server.wire.frame_limits import FrameLimits
from bookkeeper_metadata.endpoints import BOOKIE_RPC, GRPC, SOCKET, Endpoint
from bookkeeper_metadata.foundation.tls.settings import TlsFiles, TlsSettings

_LIMITS = FrameLimits()
AUTO, RPC_V2, RPC_V3 = "auto", "v2", "v3"
PROMPT_S = 0.25
"""Bookies that take longer to answer have more to do than they get done: more frames on their way to them would only grow
older, and with hundreds of writers too old (`add_timeout_ms`)."""
BOOKIE_PROTOCOLS: Mapping[str, tuple[str, ...]] = {
    AUTO: (SOCKET, GRPC, BOOKIE_RPC),
    GRPC: (GRPC,),
    RPC_V2: (BOOKIE_RPC,),
    RPC_V3: (BOOKIE_RPC,),
}
"""What a client may be told to speak with bookies, and the endpoints it then looks for, the best first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionSettings(TlsSettings):
    """How long to wait for one bookie, how much to send it at once, and how it is known to be the one."""

    add_timeout_ms: int = 10_000
    """Longest an add waits for its bookie, resends included; then the bookie counts as failed.
    Twice Apache's 5 s ``addEntryTimeout``: a loaded disk's fsync takes seconds."""
    read_timeout_ms: int = 10_000
    """Longest a read or request waits for its bookie."""
    reconnect_timeout_ms: int = 3_000
    """Longest a bookie may be unreachable before its adds fail. A restart takes about a second;
    shorter fails over faster, longer rides out slower restarts."""
    frame_size_bytes_target: int = _LIMITS.size_bytes_target
    """A frame this big is sent although others are unanswered; smaller adds wait for company."""
    frame_size_bytes_max: int = _LIMITS.size_bytes_max
    """Entries and sections are joined up to this size. A frame costs about the same CPU whatever its size. Smaller:
    less memory. Over gRPC 512 KiB cost less: a bookie takes no message above 576 KiB, and larger frames are cut and joined again."""
    frames_in_flight_max: int = _LIMITS.in_flight_max
    """Unanswered frames per bookie while they could still grow: more would be smaller, and add only latency."""
    full_frames_in_flight_max: int = _LIMITS.full_in_flight_max
    """The same where one of the largest size waits, which cannot grow, and the last one was answered within ``PROMPT_S``:
    bookies write and sync several at once. With 3 of 1 MiB they took a third more CPU for each MiB, and did a seventh less of
    them. Counts frames of `frame_size_bytes_max`: of larger ones fewer."""

    @property
    def frame_limits(self) -> FrameLimits:
        """Of the frames to a bookie, and of the runs of a writer."""
        return FrameLimits(
            size_bytes_target=self.frame_size_bytes_target,
            size_bytes_max=self.frame_size_bytes_max,
            in_flight_max=self.frames_in_flight_max,
            full_in_flight_max=self.full_frames_in_flight_max,
        )

    def tls_files_towards(self, endpoint: Endpoint) -> TlsFiles | None:
        """What to talk with to a bookie there; ``None``: in clear."""
        return self.tls_files if self.tls_only or endpoint.has_tls else None
