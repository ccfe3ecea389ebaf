"""Notifications sent by `notify` at a run's end; their outcome changes nothing about the run."""

from __future__ import annotations

import logging
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from singer_spark.errors import SingerSparkError
from singer_spark.program.amounts import span_text
from singer_spark.state.run_log import ABORTED, RunEntry, read_entry
from target_spark_lake.commit.journal import reason_of
from target_spark_lake.config.receivers import FAILED, RECOVERED, SUCCEEDED, Receiver

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from target_spark_lake.commit.pipeline_run import PipelineRun
    from target_spark_lake.tables.changes import StreamReport

JSON = dict[str, Any]
FORMAT_VERSION = 1
# Chat tools refuse much longer texts.
LONGEST_TEXT = 2000
# What begins the reason of a run whose tap failed; the tap's own error follows.
TAP_FAILED = "the tap failed: "
# What an error quotes from a record or a line follows these words.
_QUOTING = re.compile(
    r"( is not JSON| a record is invalid at .*?(?=: )|: the value(?= )| The last one(?=: )"
    r"| can't hold| can't be read(?=: )|, so it can't be merged(?=: )"
    r"| has no record object(?=: )| version is not an integer(?=: )| it has no type(?=: )| is nested too deeply(?=: ))"
)
# The same in errors of the tap: the database's own words quote values where it reads them.
_TAP_QUOTING = re.compile(
    r"( holds a value(?: in the log)? that (?:is not a valid|does not fit)"
    r"| reading failed(?=: (?!(?:key )?column .* holds a value))| the saved bookmark can't be used(?=: ))"
)
logger = logging.getLogger("target-spark-lake")


def notify_of_dead(run: PipelineRun, receivers: Sequence[Receiver]) -> None:
    """Notify of runs killed before they could do so; this run found them and recorded that they failed."""
    for run_id in run.recovery.rolled_back if any(FAILED in each.on for each in receivers) else ():
        entry = _newest_sync(run, [run_id])
        if entry is not None:
            error = without_values(entry.body["error"])
            _notify(run, receivers, (FAILED,), f"failed: {error}", run_id=run_id, error=error)


def notify_of_failure(run: PipelineRun, receivers: Sequence[Receiver], error: BaseException) -> None:
    """Notify of a failed run, after the failure is recorded."""
    if receivers:
        took = span_text((datetime.now(UTC) - run.started_at).total_seconds())
        reason = without_values(reason_of(error))
        _notify(run, receivers, (FAILED,), f"failed after {took}: {reason}", error=reason)


def notify_of_success(run: PipelineRun, receivers: Sequence[Receiver], reports: Mapping[str, StreamReport]) -> None:
    """Notify of a published run; its outcome is `recovered` if the run before it failed."""
    streams = {stream: report.records for stream, report in reports.items()}
    text = f"{sum(streams.values())} records in {sum(map(bool, streams.values()))} stream(s)"
    failure = _failure_before(run) if any(RECOVERED in each.on for each in receivers) else None
    if failure is None:
        _notify(run, receivers, (SUCCEEDED,), text, streams=streams)
    else:
        text = f"recovered: {text}; the last run had failed: {failure}"
        _notify(run, receivers, (RECOVERED, SUCCEEDED), text, streams=streams)


def without_values(reason: str) -> str:
    """A failure's reason without the values of records: receivers may not be allowed to read the data."""
    found = (_TAP_QUOTING if reason.startswith(TAP_FAILED) else _QUOTING).search(reason)
    return f"{reason[: found.end()]}…; `spark-lake runs` shows it whole" if found else reason


def _notify(
    run: PipelineRun,
    receivers: Sequence[Receiver],
    outcomes: Sequence[str],
    text: str,
    *,
    run_id: str | None = None,
    error: str | None = None,
    streams: Mapping[str, int] | None = None,
) -> None:
    """Send each receiver the first of these outcomes that it wants, if any."""
    found = [(each, next((outcome for outcome in outcomes if outcome in each.on), None)) for each in receivers]
    addressed = [(receiver, outcome) for receiver, outcome in found if outcome is not None]
    if not addressed:
        return
    from target_spark_lake.load.webhook import post

    text = f"{run.layout.pipeline}: {text}"
    notice: JSON = {
        "format_version": FORMAT_VERSION,
        "text": text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}…",
        "pipeline": run.layout.pipeline,
        "run_id": run_id or run.run_id,
        "error": error,
        "streams": streams or {},
    }
    problems = post([(receiver.url, {**notice, "outcome": outcome}) for receiver, outcome in addressed])
    for (receiver, outcome), problem in zip(addressed, problems, strict=True):
        if problem is not None:
            logger.warning("notify: %s was not told that a run %s: %s", receiver.place, outcome, problem)


def _failure_before(run: PipelineRun) -> str | None:
    """Why the pipeline's previous run failed; None if it didn't, or if that is unknown."""
    entry = _newest_sync(run, run.recovery.decided)
    if entry is None or (entry.phase != ABORTED and entry.run_id != run.recovery.finished):
        return None
    return without_values(entry.body["error"] or "") or "it ended before all of it was published"


def _newest_sync(run: PipelineRun, run_ids: Sequence[str]) -> RunEntry | None:
    """The first of these that is a run of the target; failures of `spark-lake` are seen by its caller."""
    try:
        entries = (read_entry(run.storage, run.layout.runs, run_id) for run_id in run_ids)
        return next((entry for entry in entries if entry is not None and entry.body.get("command") is None), None)
    except SingerSparkError as error:
        logger.warning("notify: what became of the run before is not known: %s", error)
        return None
