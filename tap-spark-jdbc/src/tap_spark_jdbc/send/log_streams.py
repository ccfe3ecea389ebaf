"""The streams of a run that are read from the database's log."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from singer_spark.errors import one_line
from tap_spark_jdbc.send.stream_errors import OF_A_STREAM

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tap_spark_jdbc.extract.run_state import RunState
    from tap_spark_jdbc.extract.stream_snapshot import StreamSnapshots
    from tap_spark_jdbc.send.jdbc_stream import JdbcStream, TapRun
    from tap_spark_jdbc.send.stream_errors import StreamErrors
    from tap_spark_jdbc.source.database import Database
    from tap_spark_jdbc.wal.change_log import ChangeLog


def log_of(
    database: Database, snapshots: StreamSnapshots, state: RunState, pipeline: str
) -> ChangeLog[Any]:
    """The log of this kind of database; nothing is queried yet."""
    if database.source.dialect.name == "mariadb":
        from tap_spark_jdbc.binlog.binlog_run import BinlogRun

        return BinlogRun(database, state)
    from tap_spark_jdbc.wal.log_run import LogRun

    return LogRun(database, snapshots, state, pipeline)


def begin_log(
    streams: Iterable[JdbcStream], run: TapRun, pipeline: str, errors: StreamErrors
) -> ChangeLog[Any] | None:
    """The log, ready to be read; None if no stream is read from it."""
    chosen = [
        each
        for each in streams
        if each.plan.is_log_based and each.selected and each.name not in errors.reasons
    ]
    if not chosen:
        return None

    def taken_back(stream: str) -> Callable[[], None]:
        return partial(run.state.skip, stream, [stream])

    def prepared(streams: Sequence[JdbcStream]) -> ChangeLog[Any]:
        log = log_of(run.database, run.snapshots, run.state, pipeline)
        log.prepare([each.plan for each in streams])
        return log

    for each in chosen:
        if each.name in errors.strangers:
            with errors.of(each.name, taken_back(each.name)):
                log_of(run.database, run.snapshots, run.state, pipeline).check(each.plan)
    chosen = [each for each in chosen if each.name not in errors.reasons]
    known = [each for each in chosen if each.name not in errors.strangers]
    if not chosen:
        return None
    log: ChangeLog[Any] | None = None
    with errors.of_all({each.name: taken_back(each.name) for each in chosen}):
        try:
            log = prepared(chosen)
        except OF_A_STREAM as error:
            if errors.skips_all or not known or known == chosen:
                raise
            # Perhaps one of the streams that join is at fault, such as a table that this user may
            # not publish.
            for each in (each for each in chosen if each not in known):
                errors.skip(each.name, f"stream {each.name}: {one_line(error)}")
                taken_back(each.name)()
            log, chosen = prepared(known), known
    if log is None or any(each.name in errors.reasons for each in chosen):
        return None
    for each in chosen:
        each.plan, each.log_start = log.plans[each.name], log.starts.get(each.name)
    return log


def send_changes(
    log: ChangeLog[Any], streams: Iterable[JdbcStream], run: TapRun, errors: StreamErrors
) -> None:
    """Send the changes of the streams whose tables were read in an earlier run."""
    with errors.of_all({each.name: each.take_back for each in streams if log.reads(each.name)}):
        log.send(run.budget, run.progress)
