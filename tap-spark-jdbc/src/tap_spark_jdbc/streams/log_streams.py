"""The streams of a run that are read from the log."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tap_spark_jdbc.log.log_run import LogRun
    from tap_spark_jdbc.streams.jdbc_stream import JdbcStream, TapRun
    from tap_spark_jdbc.streams.stream_errors import StreamErrors


def begin_log(streams: Iterable[JdbcStream], run: TapRun, pipeline: str, errors: StreamErrors) -> LogRun | None:
    """The log, ready to be read; None if no stream is read from it."""
    chosen = [each for each in streams if each.plan.is_log_based and each.selected and each.name not in errors.reasons]
    if not chosen:
        return None
    from tap_spark_jdbc.log.log_run import LogRun

    log = LogRun(run.database, run.snapshots, run.state, pipeline)
    with errors.of_all({each.name: partial(run.state.skip, each.name, [each.name]) for each in chosen}):
        log.prepare([each.plan for each in chosen])
    if any(each.name in errors.reasons for each in chosen):
        return None
    for each in chosen:
        each.plan, each.log_start = log.plans[each.name], log.starts.get(each.name)
    return log


def send_changes(log: LogRun, streams: Iterable[JdbcStream], run: TapRun, errors: StreamErrors) -> None:
    """Send the changes of the streams whose tables were read in an earlier run."""
    with errors.of_all({each.name: each.take_back for each in streams if log.reads(each.name)}):
        log.send(run.budget, run.progress)
