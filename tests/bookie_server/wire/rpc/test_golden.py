"""What was exchanged with Apache's bookies and clients is understood, and said in the same bytes."""

from __future__ import annotations

import pytest

from bookie_server.wire.codec import MalformedFrameError
from bookie_server.wire.rpc import messages, v2, v3
from bookie_server.wire.rpc.frames import is_of_v2, parse_length
from bookie_server.wire.rpc.statuses import RpcStatus
from tests.bookie_server.wire.rpc.transcripts import CLOSED, Exchange, exchanges

OF_BOOKIES = [each for room in ("db", "sorted") for each in exchanges(f"{room}/*.txt")]
OF_CLIENTS = exchanges("java_*.txt")
TLS = exchanges("v3_tls.txt")
PADDED = "ADD_ENTRY with padded (non-canonical) varints"
OTHER_VERSION = "ADD_ENTRY with version TWO in a v3 header"
CHANGES_BACK = "... a v3 request on the same connection"
"""Refused for what came before on its connection."""


def is_closed(exchange: Exchange) -> bool:
    return exchange.received == CLOSED and exchange.title != CHANGES_BACK


def is_one_of_ours(exchange: Exchange) -> bool:
    return not is_closed(exchange) and exchange.title not in (PADDED, OTHER_VERSION)


@pytest.mark.parametrize(
    "exchange", [each for each in OF_BOOKIES + TLS if is_one_of_ours(each)], ids=str
)
def test_a_request_is_encoded_as_it_was_sent(exchange: Exchange) -> None:
    if is_of_v2(exchange.request):
        asked = v2.parse_request(exchange.request)
        if asked.version == v2.VERSION:
            assert b"".join(v2.encode_request(asked.request, asked.priority)) == exchange.sent
        else:
            assert asked.refusal is RpcStatus.EBADVERSION
    else:
        numbered = v3.parse_request(exchange.request)
        if numbered.request is None:
            assert numbered.refusal is RpcStatus.EBADREQ
        else:
            encoded = v3.encode_request(numbered.head.number, numbered.request, numbered.priority)
            assert b"".join(encoded) == exchange.sent


@pytest.mark.parametrize(
    "exchange",
    [each for each in OF_BOOKIES + OF_CLIENTS + TLS if isinstance(each.received, bytes)],
    ids=str,
)
def test_a_response_is_encoded_as_it_came(exchange: Exchange) -> None:
    if is_of_v2(exchange.response):
        assert b"".join(v2.encode_answer(v2.parse_answer(exchange.response))) == exchange.received
    else:
        assert b"".join(v3.encode_answer(v3.parse_answer(exchange.response))) == exchange.received


@pytest.mark.parametrize("exchange", OF_CLIENTS, ids=str)
def test_what_java_sends_means_what_its_title_says(exchange: Exchange) -> None:
    """Its fields come in another order than ours, and mean the same."""
    said, status = exchange.title.split(" -> ")
    version, kind, *words = said.split()
    request: messages.Request | None
    if version == "v2":
        asked = v2.parse_request(exchange.request)
        request, answered = asked.request, v2.parse_answer(exchange.response).status
        again = v2.parse_request(b"".join(v2.encode_request(request, asked.priority))[4:])
        assert again == asked
    else:
        numbered = v3.parse_request(exchange.request)
        request, answered = numbered.request, v3.parse_answer(exchange.response).status
        assert request is not None
        encoded = v3.encode_request(numbered.head.number, request, numbered.priority)
        assert v3.parse_request(b"".join(encoded)[4:]) == numbered

    assert answered.name == status.split()[0]
    assert (
        type(request)
        is {
            "ADD": messages.AddEntry,
            "READ": messages.ReadEntry,
            "long": messages.ReadEntry,
            "WRITE_LAC": messages.WriteLac,
            "READ_LAC": messages.ReadLac,
            "INFO": messages.GetInfo,
            "FORCE": messages.ForceLedger,
        }[kind]
    )
    if isinstance(request, messages.AddEntry) and version == "v3":
        assert f"flag={request.flag} writeFlags={request.write_flags}" in said
        assert len(request.master_key) == 20
    if isinstance(request, messages.ReadEntry):
        assert ("LAST" in words or kind == "long") == (request.entry_id == -1)
        assert request.is_long_poll == (kind == "long")


@pytest.mark.parametrize("exchange", [each for each in OF_BOOKIES if is_closed(each)], ids=str)
def test_what_makes_a_bookie_close_the_connection_does_not_parse(exchange: Exchange) -> None:
    def parse() -> None:
        length = parse_length(exchange.sent)
        v2.parse_request(exchange.sent[4 : 4 + length])

    with pytest.raises(MalformedFrameError):
        parse()


def test_padded_varints_mean_the_same_as_others() -> None:
    exchange = next(each for each in OF_BOOKIES if each.title == PADDED)
    numbered = v3.parse_request(exchange.request)
    assert isinstance(numbered.request, messages.AddEntry)
    assert numbered.request.entry_id == 4
    encoded = v3.encode_request(numbered.head.number, numbered.request)
    assert len(b"".join(encoded)) < len(exchange.sent)
    assert v3.parse_request(b"".join(encoded)[4:]) == numbered


def test_a_header_of_another_version_is_refused_by_name() -> None:
    exchange = next(each for each in OF_BOOKIES if each.title == OTHER_VERSION)
    numbered = v3.parse_request(exchange.request)
    assert numbered.refusal is RpcStatus.EBADVERSION
    assert isinstance(numbered.request, messages.AddEntry)
