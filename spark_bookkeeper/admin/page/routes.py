"""What ``bookkeeper admin`` serves: a page, the documents that it shows, and metrics of logs and cursors.

Every document is made by what the command line prints. Whoever makes one waits for the cluster in a thread of
the HTTP server's; those that everybody asks for are made once a second.
"""

from __future__ import annotations

import mimetypes
from collections.abc import Callable, Mapping
from functools import partial
from http import HTTPStatus
from importlib.resources import files
from typing import Any

from bookkeeper_metadata.cluster import instance_id
from bookkeeper_metadata.errors import NoSuchLedgerError
from bookkeeper_metadata.foundation.errors import BookKeeperError
from bookkeeper_metadata.foundation.http_server import (
    Answer,
    Asked,
    RefusedError,
    Route,
    json_answer,
    metrics_route,
    recent_route,
    registry_of_process,
)
from bookkeeper_metadata.foundation.tls.contexts import tls_of
from bookkeeper_metadata.version import __version__
from spark_bookkeeper.admin.bookies import describe_bookies
from spark_bookkeeper.admin.ledgers import describe_ledger, newest_ledgers
from spark_bookkeeper.admin.log_documents import describe_log, survey_logs
from spark_bookkeeper.admin.page.exposition import LogsExposition
from spark_bookkeeper.admin.page.rates import ByteCounters
from spark_bookkeeper.admin.replication import describe_healing
from spark_bookkeeper.datasource.session import Session
from spark_bookkeeper.log.errors import NoSuchLogError

LEDGERS_MAX = 200
"""Of one answer."""
MARKS_MAX = 200
MARKS_COUNTED_MAX = 2_000
"""Each lies in a folder of its own, and is asked for by itself."""
RANGES_MAX = 2_000
"""Of a log, the newest ones: nobody sees more of them at once."""
_AGE_S = 1.0
_WAIT_S = 8.0
_SHOWN = ("index.html", "page.css", "page.js", "draw.js")

OpenSession = Callable[[], Session]


def routes_of(open_session: OpenSession) -> dict[str, Route]:
    """By path; ``open_session`` raises where the cluster cannot be reached."""
    registry = registry_of_process()
    registry.register(LogsExposition(open_session))
    shared: dict[str, Callable[[Session], Mapping[str, Any]]] = {
        "cluster": _cluster,
        "bookies": partial(_bookies, ByteCounters()),
        "replication": _replication,
        "logs": _logs,
    }
    answers: dict[str, Route] = {"/healthz": lambda _: json_answer({"version": __version__})}
    for name, describe in shared.items():
        make = partial(_answer, open_session, describe)
        answers[f"/api/v1/{name}"] = recent_route(make, _AGE_S, _WAIT_S)
    for name, describe_one in {"ledgers": _ledgers, "ledgers/*": _ledger, "logs/*": _log}.items():
        answers[f"/api/v1/{name}"] = partial(_answer_one, open_session, describe_one)
    for name in _SHOWN:
        answers[f"/{name}"] = _file(name)
    return {**answers, "/": answers["/index.html"], "/metrics": metrics_route(registry)}


def _answer(open_session: OpenSession, describe: Callable[[Session], Mapping[str, Any]]) -> Answer:
    try:
        return json_answer(describe(open_session()))
    except (NoSuchLedgerError, NoSuchLogError) as error:
        raise RefusedError(HTTPStatus.NOT_FOUND, f"{error.name}: {error}") from error
    except ValueError as error:
        raise RefusedError(HTTPStatus.BAD_REQUEST, str(error)) from error
    except BookKeeperError as error:
        raise RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, f"{error.name}: {error}") from error


def _answer_one(
    open_session: OpenSession,
    describe: Callable[[Session, Asked], Mapping[str, Any]],
    asked: Asked,
) -> Answer:
    return _answer(open_session, lambda session: describe(session, asked))


def _file(name: str) -> Route:
    body = files(__package__).joinpath(name).read_bytes()
    kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
    shown = Answer(HTTPStatus.OK, f"{kind}; charset=utf-8", body)
    return lambda _: shown


def _cluster(session: Session) -> dict[str, Any]:
    context = session.ledgers.cluster
    return {
        "metadata_service": context.store.service,
        "ledgers_root": context.root,
        "instance_id": session.run(instance_id(context.store, context.root)),
        "version": __version__,
        "now_ms": session.clock_ms(),
    }


def _bookies(counters: ByteCounters, session: Session) -> dict[str, Any]:
    bookies = session.run(describe_bookies(session.ledgers))
    tls = tls_of(session.ledgers.cluster.settings.connection.tls_files)
    context = None if tls is None else tls.client_context()
    so_far = counters.ask([each["http_address"] for each in bookies], context)
    shown = [{**each, **found} for each, found in zip(bookies, so_far, strict=True)]
    return {"now_ms": session.clock_ms(), "bookies": shown}


def _replication(session: Session) -> dict[str, Any]:
    context = session.ledgers.cluster
    described = describe_healing(
        context.store, context.root, count_max=MARKS_COUNTED_MAX, marks_max=MARKS_MAX
    )
    return {"now_ms": session.clock_ms(), **session.run(described)}


def _logs(session: Session) -> dict[str, Any]:
    return {"now_ms": session.clock_ms(), "logs": survey_logs(session)}


def _log(session: Session, asked: Asked) -> dict[str, Any]:
    found = describe_log(session, asked.name)
    ranges = found["ranges"]
    return {**found, "ranges": ranges[-RANGES_MAX:], "ranges_in_all": len(ranges)}


def _ledgers(session: Session, asked: Asked) -> dict[str, Any]:
    below = _number(asked.query["below"]) if "below" in asked.query else None
    found = session.run(newest_ledgers(session.ledgers, LEDGERS_MAX, below))
    return {"ledgers": found, "next_below": found[-1]["ledger_id"] if found else None}


def _ledger(session: Session, asked: Asked) -> dict[str, Any]:
    ledger_id = _number(asked.name)
    registered = {bookie.bookie_id for bookie in session.run(session.ledgers.bookies())}
    metadata = session.run(session.ledgers.ledger_metadata(ledger_id))
    return describe_ledger(ledger_id, metadata, registered)


def _number(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise RefusedError(HTTPStatus.BAD_REQUEST, f"no ledger's id: {text[:40]}")
    return int(text)
