"""What a run would meet in the source (`spark-lake check`): everything that is wrong, not only the
first problem. `drop_log` removes what a log-based pipeline keeps there (`spark-lake log drop`).

The target imports it by name.
"""

from __future__ import annotations

import secrets
from collections import defaultdict
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from singer_spark.compared_source import NOTE, PROBLEM, Finding
from singer_spark.core.lean_imports import import_singer_sdk
from singer_spark.errors import ConfigurationError, SingerSparkError, SourceError
from singer_spark.program.amounts import span_text
from tap_spark_jdbc.extract.late_window import LateWindow, database_clock
from tap_spark_jdbc.source.transaction_list import grant_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tap_spark_jdbc.dialects.tables import Table
    from tap_spark_jdbc.plan.stream_plan import StreamPlan
    from tap_spark_jdbc.source.connection import Connection
    from tap_spark_jdbc.tap import TapSparkJdbc

# A difference of the clocks that is worth mentioning, and one with which signatures of stores or
# tokens may be refused.
SLIGHT, GREAT = timedelta(seconds=2), timedelta(seconds=60)
# The most streams that are named for one fact.
NAMED = 5
_MARK = "tap_spark_jdbc.checked"
_POOLED = (
    "a pooler in transaction mode (pgBouncer, RDS Proxy) is between the tap and the server: the "
    "tap's time zone, date style and search path may be lost between two statements, and one "
    "connection sees another's settings and prepared statements; name the server's own port, or "
    "a pool in session mode, in jdbc_url"
)


@dataclass(frozen=True)
class CheckedSource:
    """What was found, and the catalog's streams; none if the database could not be asked."""

    findings: Sequence[Finding]
    streams: Sequence[Mapping[str, Any]] = ()


def check_source(
    config: Mapping[str, Any],
    target: Mapping[str, Any] | None = None,
    *,
    from_environment: bool = False,
) -> CheckedSource:
    """Examine a tap's source; `target` is the target's config, for its bookmarks."""
    import_singer_sdk()
    from tap_spark_jdbc.extract.run_state import OpeningState, settings_of_the_state
    from tap_spark_jdbc.plan.catalog import catalog_of
    from tap_spark_jdbc.tap import TapSparkJdbc

    findings: list[Finding] = []
    opening = None
    try:
        if target is not None:
            from singer_spark.state.source import source_of_target

            settings = settings_of_the_state(target, Path("the target's config"))
            opening = OpeningState.of(source_of_target(settings), resume=False)
    except SingerSparkError as error:
        findings.append(Finding("state", str(error), PROBLEM))
    try:
        tap = TapSparkJdbc(
            config=dict(config),
            target=None if target is None else dict(target),
            opening=opening,
            parse_env_config=from_environment,
            setup_mapper=False,
        )
    except SingerSparkError as error:
        return CheckedSource([*findings, Finding("settings", str(error), PROBLEM)])
    try:
        tables = tap.tables(defaults=True)
    except SingerSparkError as error:
        tap.database.close()
        return CheckedSource([*findings, Finding("database", str(error), PROBLEM)])
    streams: Sequence[Mapping[str, Any]] = ()
    try:
        # One by one: what was found before an error counts.
        for each in _found(tap, tables):
            findings.append(each)
        # What is wrong with settings that fit no table is known by now.
        with suppress(ConfigurationError):
            streams = catalog_of([each for each in tables if each.columns], tap.settings)["streams"]
    except SingerSparkError as error:
        findings.append(Finding("database", str(error), PROBLEM))
    finally:
        tap.database.close()
    return CheckedSource(findings, streams)


def _found(tap: TapSparkJdbc, tables: Sequence[Table]) -> Iterator[Finding]:
    connection = tap.database.connection
    yield Finding("database", f"{connection.server}, {tap.database.source.location}")
    yield from _engine(tap)
    yield from _pooler(tap, connection)
    yield from _clock(tap, tables)
    refused: dict[str, str] = {}
    plans: list[StreamPlan] = []
    try:
        plans = tap.readable(refused)
    except ConfigurationError as error:
        yield Finding("settings", str(error), PROBLEM)
    for plan in [*plans] if tap.database.source.dialect.catalog is None else ():
        # The catalog of other databases shows what the user may read.
        try:
            connection.describe(f"SELECT * FROM {tap.database.source.dialect.table(plan.table)}")
        except SourceError as error:
            plans.remove(plan)
            refused[plan.stream] = f"stream {plan.stream}: it can't be read: {error}"
    if plans:
        yield Finding("tables", f"{len(plans)} of {len(plans) + len(refused)} can be read")
    yield from (Finding("tables", reason, PROBLEM) for reason in refused.values())
    if filtered := [plan.stream for plan in plans if plan.table.filtered]:
        yield Finding(
            "tables", f"row-level security may hide rows of {_named(filtered)} from this user", NOTE
        )
    keyed = [plan for plan in plans if plan.replication_key is not None and not plan.is_log_based]
    yield from _late_rows(tap, keyed)
    yield from _log(tap, [plan for plan in plans if plan.is_log_based])


def _engine(tap: TapSparkJdbc) -> Iterator[Finding]:
    text = f"{tap.settings.engine_and_why}; PySpark {version('pyspark')}"
    try:
        if tap.database.by_spark:
            text += f", a session of Spark {tap.database.spark.version}"
        java = tap.database.gateway.jvm.java.lang.System.getProperty("java.version")
    except SingerSparkError as error:
        yield Finding("engine", str(error), PROBLEM)
    else:
        yield Finding("engine", f"{text}, Java {java}")


def _pooler(tap: TapSparkJdbc, connection: Connection) -> Iterator[Finding]:
    """A pooler reports another process to its clients than the server's; in transaction mode they
    share a session.
    """
    if tap.database.source.dialect.name != "postgresql" or (session := connection.session) is None:
        return
    ((process,),) = connection.rows("SELECT CAST(pg_catalog.pg_backend_pid() AS text)")
    if process == session:
        return
    mark = secrets.token_hex(8)
    connection.rows(f"SELECT pg_catalog.set_config('{_MARK}', '{mark}', false)")
    try:
        with closing(tap.database.another_connection()) as other:
            ((seen,),) = other.rows(f"SELECT pg_catalog.current_setting('{_MARK}', true)")
    except SourceError as error:
        # The server's session that both share has the statements that the first connection
        # prepared.
        if "prepared statement" not in str(error):
            raise
        seen = mark
    if seen == mark:
        yield Finding("pooler", _POOLED, PROBLEM)
    else:
        yield Finding(
            "pooler",
            "a pooler is between the tap and the server; its sessions last as long as a connection",
            NOTE,
        )


def _clock(tap: TapSparkJdbc, tables: Sequence[Table]) -> Iterator[Finding]:
    table = next((each for each in tables if each.columns and not each.obstacles), None)
    if table is None:
        return
    before = datetime.now(UTC)
    try:
        clock = database_clock(tap.database.connection, tap.database.source.dialect, table)
    except (SourceError, ValueError) as error:
        yield Finding("clock", f"the database's clock can't be compared: {error}", NOTE)
        return
    after = datetime.now(UTC)
    theirs = clock.moment().replace(tzinfo=UTC)
    # The time that the answer took does not count as a difference.
    ahead = theirs - min(max(theirs, before), after)
    if abs(ahead) < SLIGHT:
        yield Finding("clock", "the database's and this machine's agree")
        return
    side = "ahead of" if ahead > timedelta() else "behind"
    yield Finding(
        "clock",
        f"the database's is {span_text(abs(ahead).total_seconds())} {side} this machine's; set "
        "both by NTP",
        PROBLEM if abs(ahead) >= GREAT else NOTE,
    )


def _late_rows(tap: TapSparkJdbc, plans: Sequence[StreamPlan]) -> Iterator[Finding]:
    """How rows that are committed late are found, and the keys that cost a scan."""
    dialect, searches = tap.database.source.dialect, tap.snapshots.searches
    texts, missing = searches.described(plans), {}
    by_text: dict[str, list[str]] = defaultdict(list)
    for plan in plans:
        search, key = searches.known(plan), plan.replication_key
        if search is not None and search.missing_index:
            missing[plan.stream] = search.missing_index
        elif key is not None and not key.indexed and plan.table.query is None:
            missing[plan.stream] = (
                "no index on its replication key, so each run reads the whole table; CREATE INDEX "
                f"... ON {dialect.table(plan.table)} ({dialect.quote(key.column.name)}) makes it "
                "cheap"
            )
        text = texts.get(plan.stream) or LateWindow.of(plan, tap.settings, dialect).text
        by_text[text].append(plan.stream)
    for text, streams in by_text.items():
        kind = NOTE if text.startswith("none") else "ok"
        yield Finding("late rows", f"{text} ({_named(streams)})", kind)
    for stream, text in missing.items():
        yield Finding("indexes", f"stream {stream}: {text}", NOTE)
    if plans and dialect.open_transactions is not None:
        tap.database.oldest_transaction()
        if tap.database.hides_transactions:
            grant = grant_of(tap.database.source)
            text = f"this user may not see open transactions, which widen the window: run {grant}"
            yield Finding("late rows", text, NOTE)


def _log(tap: TapSparkJdbc, plans: Sequence[StreamPlan]) -> Iterator[Finding]:
    if not plans:
        return
    from tap_spark_jdbc.send.stream_order import log_of

    log = log_of(tap.database, tap.snapshots, tap.run_state, tap.pipeline)
    try:
        yield Finding("log", f"{log.overview()} ({_named([plan.stream for plan in plans])})")
    except SingerSparkError as error:
        yield Finding("log", str(error), PROBLEM)
        return
    for plan in plans:
        outlook = log.outlook(plan)
        if outlook is None:
            try:
                log.check(plan)
            except SingerSparkError as error:
                yield Finding("log", str(error), PROBLEM)
            continue
        text = f"stream {plan.stream}: continues at {outlook.position}"
        if outlook.lost is None:
            yield Finding("log", text)
        else:
            yield Finding("log", f"{text}: {outlook.lost}", PROBLEM)


def _named(streams: Sequence[str]) -> str:
    more = f" and {len(streams) - NAMED} more" if len(streams) > NAMED else ""
    return f"{', '.join(streams[:NAMED])}{more}"


def drop_log(
    config: Mapping[str, Any],
    state: Mapping[str, Any],
    pipeline: str,
    *,
    from_environment: bool = False,
) -> list[str]:
    """Remove a tap's slot and publication, and return their names; starts the JVM."""
    import_singer_sdk()
    from tap_spark_jdbc.extract.run_state import OpeningState
    from tap_spark_jdbc.send.stream_order import log_of
    from tap_spark_jdbc.tap import TapSparkJdbc

    opening = OpeningState(dict(state), "saved" if state else "first", None, pipeline)
    own = {**config, "batch_config": None}
    tap = TapSparkJdbc(
        config=own, opening=opening, parse_env_config=from_environment, setup_mapper=False
    )
    try:
        return log_of(tap.database, tap.snapshots, tap.run_state, pipeline).drop()
    finally:
        tap.database.close()
