"""What the driver decides before any task of a write runs: the log, the columns, the epoch.

Everything that can be refused beforehand is refused here, while no ledger exists yet. The log is
created by its first write. A plan draws its epoch last, so what was refused leaves no token behind.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from pyspark.sql.types import StructType

from bookkeeper_metadata.errors import NoSuchLedgerError
from bookkeeper_metadata.foundation.bounded import both
from bookkeeper_metadata.foundation.errors import BookKeeperError
from bookkeeper_metadata.model import DigestType
from spark_bookkeeper.datasource.errors import OptionsError, SchemaMismatchError
from spark_bookkeeper.datasource.evolution import merged
from spark_bookkeeper.datasource.options.model import WriteOptions
from spark_bookkeeper.datasource.payload.codec import check_storable
from spark_bookkeeper.datasource.schema import LogSchema, check_fits, check_raw, log_schema_of
from spark_bookkeeper.datasource.session import Session
from spark_bookkeeper.ledger.protocol.quorum import QuorumConfig
from spark_bookkeeper.log.errors import NoSuchLogError
from spark_bookkeeper.log.format.epoch import Epoch, Job, PlannedSchema, Txn
from spark_bookkeeper.log.format.model import LogHead, LogSettings, Retention
from spark_bookkeeper.log.format.raw import RAW
from spark_bookkeeper.log.nodes.reads import LogNodes

FIND_ATTEMPTS_MAX = 5
"""Times a plan begins anew because its log was deleted meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WritePlan:
    """What the driver decided and every task attempt gets; picklable."""

    options: WriteOptions
    epoch: Epoch
    job_id: str
    """Of a batch write without a transaction; tasks of a stream know their job from Spark."""
    settings: LogSettings
    """The log's, with what this write overrides."""
    schema: LogSchema
    positions: tuple[int | None, ...]
    """Where each of the schema's columns is among the DataFrame's; ``None``: it has none."""
    has_created_log: bool
    """The log did not exist before this plan."""

    def batch_job(self, query_id: str) -> Job:
        """The job of a batch write, as the process knows it that sees Spark's query id.

        ``query_id`` is empty outside of ``foreachBatch``.
        """
        app_id, version = self.options.txn_app_id, self.options.txn_version
        if app_id is None or version is None:
            return Job.of_batch(self.job_id)
        return Job.of_batch(self.job_id, Txn(app_id, version, query_id=query_id))


def make_plan(
    session: Session, options: WriteOptions, schema: StructType, *, is_overwrite: bool
) -> WritePlan:
    """The plan of one write, with its epoch drawn.

    Raises:
        SchemaMismatchError, UnsupportedTypeError: the columns do not fit; no ledger was created.
        NoSuchLogError: there is no such log and ``createLog`` is false.
        LogHasWriterError: a writer outside Spark holds the log's last ledger open, and ``takeOver``
            is false.
        UnauthorizedError: the log's rows have another password.
    """
    return session.run(_make_plan(session, options, schema, is_overwrite))


async def _make_plan(
    session: Session, options: WriteOptions, schema: StructType, is_overwrite: bool
) -> WritePlan:
    """As :func:`_plan_once`; a log that goes while the plan is made is created anew.

    The write that created the log may fail, and then deletes it under a write that has just found it.
    """
    for _ in range(FIND_ATTEMPTS_MAX - 1):
        try:
            return await _plan_once(session, options, schema, is_overwrite)
        except NoSuchLogError:
            if not options.creates_log:
                raise
    return await _plan_once(session, options, schema, is_overwrite)


async def _plan_once(
    session: Session, options: WriteOptions, schema: StructType, is_overwrite: bool
) -> WritePlan:
    assert options.log is not None
    if not schema.names:
        # Spark's batches of no columns have lost how many rows they are.
        raise SchemaMismatchError(options.log, ("a DataFrame without columns holds no rows",))
    password = options.read_password()
    nodes, has_created_log = await _find_or_create(session, options, options.log, schema)
    # Synced by whoever found it: another client may have changed schema, writer or password.
    found = await nodes.head()
    settings = overridden(found.head.settings, options)
    # Before the take-over: columns or a password that do not fit must not cost the outside writer
    # its ledger.
    (written, planned), _ = await both(
        _schema(session, nodes, found.head, options, schema),
        _check_password(session, nodes, found.head, password, is_overwrite=is_overwrite),
    )
    if options.takes_over and found.head.open_ledger is not None:
        await session.tail(nodes.log_id, nodes.log).close()
        # Closing added rows, and the epoch keeps which of them an overwrite may replace.
        found = await nodes.head()
    epoch = await session.jobs.plan(
        nodes.log_id, nodes.log, is_overwrite=is_overwrite, schema=planned, found=found
    )
    at = {name: position for position, name in enumerate(schema.names)}
    return WritePlan(
        options=options,
        epoch=epoch,
        job_id=session.draw_job_id(),
        settings=settings,
        schema=written,
        positions=tuple(at.get(name) for name in written.spark.names),
        has_created_log=has_created_log,
    )


async def _find_or_create(
    session: Session, options: WriteOptions, log: str, schema: StructType
) -> tuple[LogNodes, bool]:
    """The log, and whether it was created here."""
    try:
        return await session.catalog.find(log), False
    except NoSuchLogError:
        if not options.creates_log:
            raise
    settings = overridden(LogSettings(), options, is_new=True)
    if len({name.lower() for name in schema.names}) != len(schema.names):
        # By default Spark takes names that differ only in case for one, and so fails at every read.
        raise SchemaMismatchError(log, ("a column name stands twice, case apart",))
    if settings.payload_format == RAW:
        check_raw(log, schema)
    log_schema = log_schema_of(schema)
    check_storable(settings.payload_format, log_schema.arrow)
    # The log keeps its settings: with more bookies than there ever were, every write would be refused.
    await session.ledgers.cluster.choose_ensemble(
        QuorumConfig(settings.ensemble_size, settings.write_quorum, settings.ack_quorum)
    )
    # Another write may create the log now, with other columns, so the caller checks them again.
    try:
        return await session.catalog.open_or_create(
            log,
            settings,
            log_schema.encode(),
            Retention(time_ms=options.retention_time_ms, size_bytes=options.retention_size_bytes),
        )
    except ValueError as error:
        # Some of our own errors are ValueErrors too, and have a name and advice already.
        if isinstance(error, BookKeeperError):
            raise
        raise OptionsError((f"log {log} cannot be created: {error}",)) from error


async def _check_password(
    session: Session, nodes: LogNodes, head: LogHead, password: bytes, *, is_overwrite: bool
) -> None:
    """Refuse to append under another password: no read could give all rows of the log then.

    Raises:
        UnauthorizedError: the log's newest rows have another password.
    """
    # It leaves no row of the old password, so it may bring another.
    if is_overwrite:
        return
    newest = head.open_ledger or next(reversed(head.ranges), None)
    if newest is None and head.chunks:
        view = session.view(nodes.log_id, nodes.log)
        # The newest rows are listed in a chunk, not in the head; the last leads to their ledger.
        newest = (await view.ranges(head.next_row - 1, is_trimmed_skipped=True)).ranges[-1]
    try:
        if newest is not None:
            await session.ledgers.check_password(newest.ledger_id, password)
    except NoSuchLedgerError:
        return  # Truncated since the head was read: no row has that password any more.


async def _schema(
    session: Session, nodes: LogNodes, head: LogHead, options: WriteOptions, schema: StructType
) -> tuple[LogSchema, PlannedSchema]:
    """The schema rows will be written in, and what the commit makes of it."""
    log_schema = await session.schema(nodes, head.schema_id)
    if head.settings.payload_format == RAW:
        check_raw(nodes.log, schema)
    if not options.merges_schema:
        check_fits(nodes.log, log_schema.spark, schema)
        return log_schema, PlannedSchema(head.schema_id)
    wanted = merged(nodes.log, log_schema, schema)
    check_storable(head.settings.payload_format, wanted.arrow)
    # Only a write that brings something new carries a schema, so the others cannot meet with a
    # schema conflict when they commit.
    evolved = None if wanted is log_schema else wanted.encode()
    try:
        return wanted, PlannedSchema(head.schema_id, evolved)
    except ValueError as error:
        raise OptionsError((f"option mergeSchema: {error}",)) from error


def overridden(
    settings: LogSettings, options: WriteOptions, *, is_new: bool = False
) -> LogSettings:
    """The log's settings with what this write asks for; its payload format is fixed for good.

    Raises:
        OptionsError: another payload format, or quorums that do not fit together.
    """
    given = {spec.name: getattr(options, spec.name) for spec in fields(settings)}
    wanted = {name: value for name, value in given.items() if value is not None}
    if options.digest_type is not None:
        wanted["digest_type"] = DigestType[options.digest_type]
    payload_format = wanted.get("payload_format", settings.payload_format)
    if not is_new and payload_format != settings.payload_format:
        raise OptionsError(
            (f"option payloadFormat: the log has {settings.payload_format}, not {payload_format}",)
        )
    try:
        used = replace(settings, **wanted)
    except ValueError as error:
        # Behind the rule stands the whole settings object, of which the user set a few numbers.
        rule = str(error).partition("; LogSettings")[0]
        sizes = {
            name: wanted.get(name, getattr(settings, name))
            for name in ("ack_quorum", "write_quorum", "ensemble_size")
        }
        together = ", ".join(f"{name}={size}" for name, size in sizes.items())
        whose = "the defaults" if is_new else "the log's own"
        raise OptionsError((f"{rule}; with {whose} for what is not given: {together}",)) from error
    least = options.min_write_quorum
    if least is not None and least > used.write_quorum:
        raise OptionsError(
            (
                f"option minWriteQuorum must not be above writeQuorum; {least} > "
                f"{used.write_quorum}, of which no entry has more copies",
            )
        )
    return used
