"""Decoders of what ledgers and the cluster have in the metadata store: Apache's bytes and texts, and our own."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from random import Random
from typing import Any, TypeVar

from google.protobuf import text_format

from bookkeeper_metadata import bookies, cluster, cookies, paths, serde, underreplication
from bookkeeper_metadata.cookies import Cookie, StartCounter
from bookkeeper_metadata.endpoints import BookieServiceInfo, Endpoint
from bookkeeper_metadata.errors import MetadataCorruptError
from bookkeeper_metadata.model import DigestType, Fragment, LedgerMetadata, LedgerState
from bookkeeper_metadata.paths import PeriodicCheck
from bookkeeper_metadata.proto.ledger_metadata_pb2 import LedgerMetadataFormat
from bookkeeper_metadata.proto.underreplication_pb2 import CheckTimeFormat
from bookkeeper_metadata.store import acl
from bookkeeper_metadata.store.memory import MemoryStore
from bookkeeper_metadata.store.operations import Node
from bookkeeper_metadata.underreplication import Mark, Underreplication
from tests.fuzzing.decoder import Bound, Decoder

_AT = "bookkeeper_metadata"
_ENSEMBLE = ("192.0.2.1:3181", "192.0.2.2:3181", "192.0.2.3:3181")
_TEXT_STEPS = Bound(8_000, 400)
"""Texts are read by protobuf's own Python, a token at a time."""
_TEXT_MEMORY = Bound(128 * 1024, 512)
T = TypeVar("T")


class _OneNode(MemoryStore):
    """A store whose every node has the same value."""

    def __init__(self, value: bytes) -> None:
        super().__init__()
        self._value = value

    async def get(self, path: str) -> Node | None:
        return Node(self._value, 3, 5)


def _now(of: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never waits."""
    try:
        of.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    raise AssertionError("it waits")


def _ledgers() -> list[LedgerMetadata]:
    fragments = (Fragment(0, _ENSEMBLE), Fragment(2**40, tuple(reversed(_ENSEMBLE))))
    return [
        LedgerMetadata(ensemble_size=3, write_quorum=3, ack_quorum=2, fragments=fragments[:1]),
        LedgerMetadata(
            ensemble_size=3,
            write_quorum=3,
            ack_quorum=2,
            fragments=fragments,
            state=LedgerState.CLOSED,
            last_entry=2**41,
            length=2**50,
            digest_type=DigestType.HMAC,
            password=b"secret",
            custom_metadata={"a": b"1", "b": b"\xff"},
            created_ms=1_700_000_000_000,
            writer_token=99,
        ),
    ]


def _values() -> list[bytes]:
    return [serde.encode_metadata(each) for each in _ledgers()]


def _texts() -> list[bytes]:
    """Of version 2, as Apache wrote it before 4.9."""
    texts = []
    for value in _values():
        _, _, body = value.partition(b"\n")
        size = 1 if body[0] < 128 else 2
        message = LedgerMetadataFormat.FromString(body[size:])
        texts.append(
            f"BookieMetadataFormatVersion\t2\n{text_format.MessageToString(message)}".encode()
        )
    return texts


def _version_1() -> list[bytes]:
    """Of the days before protocol buffers; nothing reads it any more, but to say so."""
    return [b"BookieMetadataFormatVersion\t1\n2\n3\n0\n0\t192.0.2.1:3181\t192.0.2.2:3181\t192.0.2.3:3181\n"]  # fmt: skip


def _sealed_ledger(content: bytes) -> bytes:
    """With a length that fits, where it is of version 3."""
    head, line_feed, body = content.partition(b"\n")
    at = 0
    while at < len(body) and body[at] > 127:
        at += 1
    message = body[at + 1 :]
    return head + line_feed + serde._encode_varint(len(message)) + message


def _infos() -> list[BookieServiceInfo]:
    endpoint = Endpoint("bookie", "127.0.0.1", 3181, "grpc", ("a",), ("b", "c"))
    return [BookieServiceInfo((endpoint, Endpoint("h", "::1", 80, "http")), {"k": "v"})]


def _mark(content: bytes) -> Mark:
    return underreplication.parse_mark(Node(content, 0, 0), "/mark")


def _mark_of(mark: Mark) -> bytes:
    return underreplication.encode_mark(mark)


def _marks() -> list[bytes]:
    return [_mark_of(Mark(_ENSEMBLE[:2], 5)), b'replica: "b:1"\nunknown: 3\nother { a: 1 }\n']


def _managed(content: bytes) -> Underreplication:
    return Underreplication(_OneNode(content), "/ledgers", random=Random(0))


def _last_check(content: bytes) -> int | None:
    return _now(_managed(content).last_check_ms(PeriodicCheck.REPLICAS))


def _delay(content: bytes) -> int | None:
    return _now(_managed(content).lost_bookie_delay())


def _layout(content: bytes) -> object:
    return _now(cluster.read_layout(_OneNode(content), "/ledgers"))


_Row = Callable[..., Decoder]
_row: _Row = partial(Decoder, errors=(MetadataCorruptError,))
_text: _Row = partial(_row, steps=_TEXT_STEPS, memory=_TEXT_MEMORY)

DECODERS: tuple[Decoder, ...] = (
    _row(
        name="ledger-metadata-v3",
        decode=lambda content: serde.parse_metadata(content, "/L1"),
        encode=serde.encode_metadata,
        seeds=_values,
        seal=_sealed_ledger,
        covers=(f"{_AT}.serde.parse_metadata",),
        memory=Bound(64 * 1024, 128),
    ),
    _text(
        name="ledger-metadata-v1-v2",
        decode=lambda content: serde.parse_metadata(content, "/L1"),
        encode=serde.encode_metadata,
        seeds=lambda: [*_texts(), *_version_1()],
        covers=(f"{_AT}.serde.parse_metadata",),
    ),
    _row(
        name="service-info",
        decode=lambda content: bookies.parse_service_info(content, "127.0.0.1:3181"),
        # Without endpoints it has no bytes, which are an old bookie's.
        encode=lambda info: bookies.encode_service_info(info) or None,
        seeds=lambda: [b"", *map(bookies.encode_service_info, _infos())],
        covers=(f"{_AT}.bookies.parse_service_info", f"{_AT}.endpoints.parse_address"),
        memory=Bound(64 * 1024, 128),
    ),
    _text(
        name="cookie",
        decode=lambda content: cookies.parse_cookie(content, "/cookie"),
        encode=cookies.encode_cookie,
        seeds=lambda: [
            cookies.encode_cookie(Cookie("b:1", ("/j0", "/j1"), ("/l",), "c" * 36)),
            b'4\nbookieHost: "b:1"\njournalDir: "/j"\nledgerDirs: "2\\t/a\\t/b\\t"\n',
        ],
        covers=(f"{_AT}.cookies.parse_cookie",),
    ),
    _row(
        name="start-counter",
        decode=lambda content: cookies.parse_counter(content, "/starts"),
        encode=cookies.encode_counter,
        seeds=lambda: [
            cookies.encode_counter(StartCounter(3)),
            cookies.encode_counter(StartCounter(2**40, "a" * 32, True, True, 7)),
        ],
        covers=(f"{_AT}.cookies.parse_counter",),
        memory=Bound(64 * 1024, 128),
    ),
    _text(
        name="underreplication-mark",
        decode=_mark,
        seeds=_marks,
        covers=(f"{_AT}.underreplication.parse_mark", f"{_AT}.proto.text.parse_text"),
    ),
    _row(
        name="last-check",
        decode=_last_check,
        seeds=lambda: [CheckTimeFormat(ctime=1_700_000_000_000).SerializeToString()],
        covers=(f"{_AT}.underreplication.Underreplication.last_check_ms",),
    ),
    _row(
        name="lost-bookie-delay",
        decode=_delay,
        errors=(),
        seeds=lambda: [b"0", b"3600"],
        covers=(f"{_AT}.underreplication.Underreplication.lost_bookie_delay",),
    ),
    _row(
        name="layout",
        decode=_layout,
        seeds=lambda: [
            f"2\n{factory}{end}".encode()
            for factory in cluster._FACTORIES.values()
            for end in ("", "\n")
        ],
        covers=(f"{_AT}.cluster.read_layout",),
        memory=Bound(64 * 1024, 128),
    ),
    _row(
        name="metadata-uri",
        decode=lambda content: paths.parse_uri(content.decode()),
        encode=lambda uri: str(uri).encode(),
        errors=(ValueError,),
        seeds=lambda: [
            b"zk+hierarchical://h1:2181;h2:2182/ledgers",
            b"zk://h/a/b",
            b"zk+null://h,i/x",
        ],
        covers=(f"{_AT}.paths.parse_uri",),
        memory=Bound(64 * 1024, 128),
    ),
    _row(
        name="zookeeper-acl",
        decode=lambda content: acl.parse_acl(content.decode()),
        encode=lambda found: ",".join(map(str, found)).encode(),
        errors=(ValueError,),
        seeds=lambda: [
            b"world:anyone:r",
            b"digest:user:hash=:cdrwa, world:anyone:r",
            b"x509:CN=a,O=b:rw,digest:u:h:r",
        ],
        covers=(f"{_AT}.store.acl.parse_acl",),
        memory=Bound(64 * 1024, 256),
    ),
    _row(
        name="name-of-mark",
        decode=lambda content: paths.marked_ledger(content.decode("latin-1")),
        encode=lambda found: None if found is None else paths.mark_name(found).encode(),
        errors=(),
        seeds=lambda: [b"urL0000000007", b"urL9223372036854775807"],
        covers=(f"{_AT}.paths.marked_ledger",),
    ),
)
