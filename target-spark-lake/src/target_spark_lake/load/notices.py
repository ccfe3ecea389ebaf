"""Notifications sent by `notify` at a run's end, and the error that they name if the run failed;
their outcome changes nothing about the run.
"""

from __future__ import annotations

import json
import logging
import os
import re
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import urlsplit

from singer_spark.core.signals import seconds_left
from singer_spark.errors import SingerSparkError, redact
from singer_spark.program.amounts import span_text
from singer_spark.state.handover import take_failure
from singer_spark.state.run_log import ABORTED, RunEntry, read_entry
from target_spark_lake.commit.bookmarks import unread_lags
from target_spark_lake.commit.journal import reason_of
from target_spark_lake.config.receivers import FAILED, LAG, RECOVERED, SCHEMA, SUCCEEDED, Receiver
from target_spark_lake.error_codes import LakeCode
from target_spark_lake.intake.singer_lines import DeadTapError, EmptyInputError

if TYPE_CHECKING:
    from http.client import HTTPMessage
    from urllib.request import OpenerDirector, Request

    from target_spark_lake.commit.pipeline_run import PipelineRun
    from target_spark_lake.table.changes import StreamReport

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
    r"| has no record object(?=: )| version is not an integer(?=: )| it has no type(?=: )| is "
    r"nested too deeply(?=: ))"
)
# The same in errors of the tap: the database's own words quote values where it reads them.
_TAP_QUOTING = re.compile(
    r"( holds a value(?: in the log)? that (?:is not a valid|does not fit)"
    r"| reading failed(?=: (?!(?:key )?column .* holds a value))| the saved bookmark can't be "
    r"used(?=: ))"
)
# For all posts together: name look-up, connection, redirects, answer.
SECONDS = 5.0
# A process that a signal ends needs the rest of its time to end.
SECONDS_FOR_THE_END = 2.0
MOST_BYTES = 1 << 20
# Other redirects would turn the POST into a GET without content.
KEEP_THE_METHOD = (307, 308)
REDIRECTS = 3
logger = logging.getLogger("target-spark-lake")


class TapFailedError(SingerSparkError):
    """The tap ended with an error, which it left for the run's report."""


@dataclass(frozen=True)
class _Notice:
    """One message; each receiver gets it for the first of its outcomes that the receiver wants, if
    any.
    """

    outcomes: Sequence[str]
    text: str
    error: str | None = None
    streams: Mapping[str, int] = field(default_factory=dict)
    more: JSON = field(default_factory=dict)


def root_error(run: PipelineRun, error: BaseException, began: datetime) -> BaseException:
    """The tap's own error if the input ended because of it, otherwise the error itself; `began` is
    when this program did.
    """
    if isinstance(error, DeadTapError | EmptyInputError):
        reason = take_failure(run.storage, run.layout.pipeline, os.environ, began)
        if reason is not None:
            return TapFailedError(LakeCode.TAP_FAILED, f"{TAP_FAILED}{reason}")
    return error


def notify_of_dead(run: PipelineRun, receivers: Sequence[Receiver]) -> None:
    """Notify of runs killed before they could do so.

    This run found them and recorded that they failed.
    """
    for run_id in run.recovery.rolled_back if _wants(receivers, FAILED) else ():
        entry = _newest_sync(run, [run_id])
        if entry is not None:
            error = without_values(entry.body["error"])
            _notify(run, receivers, [_Notice((FAILED,), f"failed: {error}", error)], run_id)


def notify_of_failure(
    run: PipelineRun,
    receivers: Sequence[Receiver],
    error: BaseException,
    max_lag_minutes: float | None,
) -> None:
    """Notify of a failed run, once that is recorded, and of a lag that passed its bound."""
    if receivers:
        now = datetime.now(UTC)
        took = span_text((now - run.started_at).total_seconds())
        reason = without_values(reason_of(error))
        failed = _Notice((FAILED,), f"failed after {took}: {reason}", reason)
        lags = unread_lags(run.committed_state(), now)
        _notify(
            run,
            receivers,
            [failed, *_lag(run, receivers, max_lag_minutes, now, lags, has_failed=True)],
        )


def notify_of_success(
    run: PipelineRun,
    receivers: Sequence[Receiver],
    reports: Mapping[str, StreamReport],
    changes: Mapping[str, Sequence[str]],
    state: Mapping[str, Any] | None,
    max_lag_minutes: float | None,
) -> None:
    """Notify of a published run; its outcome is `recovered` if the run before it failed.

    Args:
        run: The run.
        receivers: Those of the setting.
        reports: What it published.
        changes: How columns and keys of streams have changed, in words.
        state: The state after the run.
        max_lag_minutes: The bound for lags.
    """
    if not receivers:
        return
    streams = {stream: report.records for stream, report in reports.items()}
    text = f"{sum(streams.values())} records in {sum(map(bool, streams.values()))} stream(s)"
    outcomes: tuple[str, ...] = (SUCCEEDED,)
    if _wants(receivers, RECOVERED) and (failure := _failure_before(run)) is not None:
        outcomes = (RECOVERED, SUCCEEDED)
        text = f"recovered: {text}; the last run had failed: {failure}"
    notices = [_Notice(outcomes, text, streams=streams)]
    if changes:
        text = "; ".join(
            f"stream {stream}: {', '.join(words)}" for stream, words in changes.items()
        )
        more = {"changes": {stream: list(words) for stream, words in changes.items()}}
        notices.append(_Notice((SCHEMA,), f"changed: {text}", streams=streams, more=more))
    now = datetime.now(UTC)
    lags = _lag(run, receivers, max_lag_minutes, now, unread_lags(state, now))
    _notify(run, receivers, [*notices, *lags])


def _lag(
    run: PipelineRun,
    receivers: Sequence[Receiver],
    max_minutes: float | None,
    now: datetime,
    lags: Mapping[str, float],
    *,
    has_failed: bool = False,
) -> list[_Notice]:
    """A notice of the lags that passed the bound since the run before, and only of those, so that
    it is sent once.
    """
    if max_minutes is None or not _wants(receivers, LAG):
        return []
    bound, last = max_minutes * 60, run.recovery.last
    success = (
        datetime.fromisoformat(last.body["committed_at"])
        if last is not None and has_failed
        else None
    )
    idle = (now - success).total_seconds() if success is not None else 0.0
    passed = {stream: lag for stream, lag in lags.items() if lag > bound}
    if not passed and idle <= bound:
        return []
    if (before := _newest_sync(run, run.recovery.decided)) is not None:
        ended = datetime.fromisoformat(before.body["finished_at"] or before.body["committed_at"])
        earlier = unread_lags(run.committed_state(), ended)
        passed = {
            stream: lag for stream, lag in passed.items() if earlier.get(stream, 0.0) <= bound
        }
        idle = idle if success is not None and (ended - success).total_seconds() <= bound else 0.0
    said = [
        f"stream {stream}: it has been read only up to {span_text(lag)} ago"
        for stream, lag in passed.items()
    ]
    said += [f"no run has succeeded for {span_text(idle)}"] if idle > bound else []
    more = {"lags": {stream: round(lag) for stream, lag in passed.items()}}
    text = f"lag above {max_minutes:g} min: {'; '.join(said)}"
    return [_Notice((LAG,), text, more=more)] if said else []


def _wants(receivers: Sequence[Receiver], outcome: str) -> bool:
    return any(outcome in each.on for each in receivers)


def without_values(reason: str) -> str:
    """A failure's reason without values of records, which receivers may not be allowed to read."""
    # Reasons written by version 0.1.0 have no code.
    of_tap = reason.removeprefix(f"{LakeCode.TAP_FAILED} ").startswith(TAP_FAILED)
    found = (_TAP_QUOTING if of_tap else _QUOTING).search(reason)
    return (
        f"{reason[: found.end()]}…; `spark-lake runs` shows the full message" if found else reason
    )


def _notify(
    run: PipelineRun,
    receivers: Sequence[Receiver],
    notices: Sequence[_Notice],
    run_id: str | None = None,
) -> None:
    """Send all at once, each to the receivers that want one of its outcomes."""
    addressed = [
        (receiver, outcome, notice)
        for notice in notices
        for receiver in receivers
        if (outcome := next((each for each in notice.outcomes if each in receiver.on), ""))
    ]
    if not addressed:
        return
    contents = [
        (receiver.url, {**_content(run, notice, run_id), "outcome": outcome})
        for receiver, outcome, notice in addressed
    ]
    for (receiver, outcome, _), problem in zip(addressed, _posted(contents), strict=True):
        if problem is not None:
            what = {SCHEMA: "of a changed schema", LAG: "of a lag"}.get(
                outcome, f"that a run {outcome}"
            )
            logger.warning("notify: %s was not notified %s: %s", receiver.location, what, problem)


def _content(run: PipelineRun, notice: _Notice, run_id: str | None) -> JSON:
    text = f"{run.layout.pipeline}: {notice.text}"
    return {
        "format_version": FORMAT_VERSION,
        "text": text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}…",
        "pipeline": run.layout.pipeline,
        "run_id": run_id or run.run_id,
        "error": notice.error,
        "streams": dict(notice.streams),
        **notice.more,
    }


def _failure_before(run: PipelineRun) -> str | None:
    """Why the pipeline's previous run failed; None if it didn't, or if that is unknown."""
    entry = _newest_sync(run, run.recovery.decided)
    if entry is None or (entry.phase != ABORTED and entry.run_id != run.recovery.finished):
        return None
    return without_values(entry.body["error"] or "") or "it ended before everything was published"


def _newest_sync(run: PipelineRun, run_ids: Sequence[str]) -> RunEntry | None:
    """The first of these that is a run of the target; `spark-lake`'s caller sees its own."""
    try:
        entries = (read_entry(run.storage, run.layout.runs, run_id) for run_id in run_ids)
        syncs = (each for each in entries if each is not None and each.body.get("command") is None)
        return next(syncs, None)
    except SingerSparkError as error:
        logger.warning("notify: the outcome of the previous run is unknown: %s", error)
        return None


def _posted(contents: Sequence[tuple[str, JSON]]) -> list[str | None]:
    """Post each content to its URL, all at once, in bounded time.

    Returns:
        For each, why it was not accepted, without any part of its URL; None if it was.
    """
    seconds = min(SECONDS, max(0.0, seconds_left() - SECONDS_FOR_THE_END))
    deadline = time.monotonic() + seconds
    posts = [_started(url, json.dumps(content).encode()) for url, content in contents]
    done, _ = wait(posts, max(0.0, deadline - time.monotonic()))
    return [
        each.result() if each in done else f"no complete response within {seconds:.0f} s"
        for each in posts
    ]


def _started(url: str, data: bytes) -> Future[str | None]:
    """A post in a thread of its own; the result is its problem."""
    problem: Future[str | None] = Future()
    # Nothing can stop a name look-up, so the end of the process must not wait for it, as it would
    # for an executor.
    thread = threading.Thread(
        target=lambda: problem.set_result(_problem(url, data)), name="notify", daemon=True
    )
    try:
        thread.start()
    except RuntimeError:
        problem.set_result("no thread could be started")
    return problem


def _problem(url: str, data: bytes) -> str | None:
    from urllib.request import Request

    headers = {"Content-Type": "application/json", "User-Agent": "target-spark-lake"}
    request = Request(url, data, headers, method="POST")
    try:
        # Longer than the post is waited for, so that each silence is reported in the same words.
        with _opener().open(request, timeout=2 * SECONDS) as answer:
            return "its response has no end" if len(answer.read(MOST_BYTES)) == MOST_BYTES else None
    except Exception as error:  # a receiver, whatever it does, changes nothing about the run
        return _in_words(error)


def _opener() -> OpenerDirector:
    """Posts again to the target of a redirect, within the scheme of the original URL alone."""
    # Imported here, since runs without notices need no HTTP client.
    from urllib.request import HTTPRedirectHandler, Request, build_opener

    class SameScheme(HTTPRedirectHandler):
        def redirect_request(
            self,
            req: Request,
            fp: IO[bytes],
            code: int,
            msg: str,
            headers: HTTPMessage,
            newurl: str,
        ) -> Request | None:
            same_scheme = urlsplit(newurl).scheme == urlsplit(req.full_url).scheme
            if code not in KEEP_THE_METHOD or not same_scheme:
                return None
            return Request(newurl, req.data, dict(req.headers), method="POST")

    return build_opener(SameScheme)


def _in_words(error: Exception) -> str:
    """The reason, without any part of the URL: messages of libraries may quote it."""
    from urllib.error import HTTPError, URLError

    if isinstance(error, HTTPError):
        error.close()
        redirects = error.code // 100 == REDIRECTS
        return (
            f"its answer is {error.code}{', a redirect that is not followed' if redirects else ''}"
        )
    reason = error.reason if isinstance(error, URLError) else error
    if isinstance(reason, OSError):
        return " ".join(redact(reason.strerror or str(reason)).split())
    return type(reason).__name__
