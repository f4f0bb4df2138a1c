"""Bugs of the carrier over plain sockets, at both of its ends."""

from __future__ import annotations

from bookie_server.carrier.connection import Connection
from bookie_server.client.grpc_client import WriteCall
from bookie_server.client.request_stream import RequestStream
from bookie_server.client.write_stream import WriteStream
from bookie_server.serving import socket_adds
from bookie_server.serving.connection_carrier import ConnectionCarrier
from bookie_server.serving.socket_service import SocketService, _Requests
from tests.mutants.planting import DirectedMutants

_VIRTUAL = "tests/bookie_server/test_sockets_on_virtual_time.py"
_ADDS = "test_an_add_is_answered_once_whatever_becomes_of_its_connection"
_REQUESTS = "test_a_request_has_one_sound_answer_whatever_becomes_of_its_connection"
_STREAM = "tests/bookie_server/client/test_write_stream.py"
_SERVICE = "tests/bookie_server/test_socket_service.py"
_MEMORY = "tests/bookie_server/test_socket_memory.py"

mutant = DirectedMutants()

mutant(
    "byte_sent_twice",
    "where a send takes a part, the rest begins a byte too early",
    _VIRTUAL,
    _ADDS,
).edit(Connection._forget, {"[taken:]": "[taken - 1 :]"})
mutant(
    "unanswered_not_sent_again",
    "what a broken connection left unanswered waits for its deadline",
    _VIRTUAL,
    _ADDS,
).edit(WriteStream._resend_unanswered, {"self._unsent.extendleft(reversed(again))": "pass"})
mutant(
    "dead_connection_used_on",
    "requests go to a connection that has ended",
    _VIRTUAL,
    _REQUESTS,
).edit(RequestStream._run, {"self._connection = None\nif": "if"})
mutant(
    "frames_pile_up",
    "frames are queued for a bookie that takes none",
    _STREAM,
    "test_what_a_stuck_bookie_is_sent_does_not_pile_up",
).edit(
    WriteStream._may_send,
    {" or stream.unsent_bytes >= self._settings.frame_size_bytes_max": ""},
)
mutant(
    "written_bytes_kept_counted",
    "a stream that was busy once is taken for full",
    _STREAM,
    "test_the_pieces_of_a_frame_are_sent_in_a_row_and_all_again_after_a_break",
).edit(WriteCall._send, {"self._unsent_bytes -= len(frame)": "self._unsent_bytes += 2**30"})
mutant(
    "stranger_believed",
    "a client takes the word of another bookie",
    _SERVICE,
    "test_of_whom_means_another_bookie_nothing_is_read",
).edit(SocketService._greet, {"if not hello.means(own.bookie_id, own.instance_id):": "if False:"})
mutant(
    "small_frames_behind_promises",
    "a small frame waits for room that others announce and do not fill",
    _MEMORY,
    "test_small_frames_wait_for_no_frame_that_others_announce",
).edit(ConnectionCarrier._receive_promised, {"size_bytes <= USUAL_SIZE_MAX": "False"}).edit(
    socket_adds._memory_for, {"head.size_bytes <= USUAL_SIZE_MAX": "False"}
)
mutant(
    "fence_behind_reads",
    "a fence waits until reads of the same client have been begun",
    "tests/bookie_server/test_service.py",
    "test_a_fence_does_not_wait_behind_reads_that_are_not_answered",
).edit(_Requests.__init__, {"parked_max=REQUESTS_IN_FLIGHT_MAX": "parked_max=1"})

SOCKETS = mutant.all()
