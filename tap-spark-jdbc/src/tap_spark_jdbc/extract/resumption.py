"""Whether a run continues one that died (plain Python).

The checkpoint must be of the same extraction. A whole table is continued where the dead run stopped
only if the rows that it sent are all still there, unchanged.

A row version never changes: it is deleted, or replaced by another one with a later writer. So if
all the rows that were visible then, by their number, are still visible in the same part of the same
table, none of them was changed or deleted. Rows with a later writer were added since, and are sent
too (PostgreSQL). Without this proof a table is read from its start.
"""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any

from singer_spark.core.bookmark import TransactionSnapshot
from singer_spark.core.config_file import SDK_SETTINGS
from singer_spark.error_codes import RunCode
from singer_spark.errors import StateError
from tap_spark_jdbc.extract.extraction import split_key
from tap_spark_jdbc.extract.run_state import RESUME_FORMAT_VERSION, bookmark_of, checked_state
from tap_spark_jdbc.extract.server import SnapshotServer, snapshot_numbers
from tap_spark_jdbc.extract.stream_progress import StreamProgress, TableMoment
from tap_spark_jdbc.plan.late_rows import FAR, WRITER, LateRows
from tap_spark_jdbc.plan.slices import Range, Slice
from tap_spark_jdbc.source.jdbc_source import url_without_login

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from singer_spark.state.store import Checkpoint
    from tap_spark_jdbc.config.settings import TapSettings
    from tap_spark_jdbc.dialects import Dialect
    from tap_spark_jdbc.extract.extraction import Extraction
    from tap_spark_jdbc.plan.stream_plan import StreamPlan
    from tap_spark_jdbc.plan.stream_sql import Point

logger = logging.getLogger("tap-spark-jdbc")

_UNKNOWN = "nothing shows whether a row of it was changed or deleted since"
_OTHER = "the database is another one, or was restored to an earlier state"
_REPLACED = "the table was emptied, rewritten or altered since"
_CHANGED = "rows of it were changed or deleted since"


def fingerprint(
    plans: Sequence[StreamPlan], settings: TapSettings, config: Mapping[str, Any], dialect: Dialect
) -> str:
    """The SHA-256 of everything in plans, settings and raw config that decides which records are
    sent, and in which order.
    """
    decides = {
        "source": url_without_login(settings.jdbc_url),
        "safety_lag_seconds": settings.safety_lag_seconds or 0,
        "mapping": {name: config[name] for name in SDK_SETTINGS if config.get(name)},
        "streams": [_of_stream(plan, dialect) for plan in plans],
    }
    if settings.safety_lag_rows is not None:
        decides["safety_lag_rows"] = settings.safety_lag_rows
    if settings.has_budget:
        # A table announced as whole may be sent in part.
        decides["has_budget"] = True
    return hashlib.sha256(json.dumps(decides, sort_keys=True, default=_plain).encode()).hexdigest()


def continued(
    checkpoint: Checkpoint | None, plans: Sequence[StreamPlan], wanted: str, dialect: Dialect
) -> dict[str, StreamProgress] | None:
    """The progress of each stream that the dead run began.

    None: this run starts over, and the log says why.

    A checkpoint whose fingerprint is not `wanted` is not continued either.

    Raises:
        StateError: a newer version of the tap wrote the checkpoint.
    """
    if checkpoint is None:
        return None
    version = checkpoint.resume.get("format_version")
    if isinstance(version, int) and version > RESUME_FORMAT_VERSION:
        raise StateError(
            RunCode.NEWER_FORMAT,
            f"the checkpoint of run {checkpoint.run_id} has a resume format version {version}, "
            f"this tap knows {RESUME_FORMAT_VERSION}: upgrade the tap, or start over with "
            "--no-resume",
        )
    if checkpoint.resume.get("fingerprint") != wanted:
        logger.info(
            "the config or the tables changed since run %s, which died: starting over instead of "
            "continuing it",
            checkpoint.run_id,
        )
        return None
    try:
        streams = _streams(checkpoint, plans, dialect)
    except (ValueError, StateError) as error:
        logger.warning(
            "the checkpoint of run %s is damaged (%s): starting over", checkpoint.run_id, error
        )
        return None
    entries = checkpoint.state["bookmarks"]
    if begun := [name for name in streams if (entries.get(name) or {}).get("reading")]:
        # Rows of a second snapshot would come again from the database's log.
        logger.info(
            "run %s died while it first read the table of LOG_BASED %s: starting over, as that "
            "takes one snapshot",
            checkpoint.run_id,
            ", ".join(begun),
        )
        return None
    logger.info("%s; --no-resume starts over", account(checkpoint.run_id, streams))
    return streams


def account(run_id: str, streams: Mapping[str, StreamProgress]) -> str:
    """A sentence for users on what the dead run has already sent."""
    rows = sum(progress.rows for progress in streams.values())
    complete = sum(progress.complete for progress in streams.values())
    return (
        f"continuing run {run_id}, which died: {rows} rows of {len(streams)} stream(s) are already "
        f"there, {complete} of them complete"
    )


def _streams(
    checkpoint: Checkpoint, plans: Sequence[StreamPlan], dialect: Dialect
) -> dict[str, StreamProgress]:
    """Parse the whole checkpoint before the run commits to continuing.

    ValueError or StateError: it is malformed.
    """
    state = checked_state(checkpoint.state, "its state")
    entries = checkpoint.resume.get("streams")
    if not isinstance(entries, dict) or not all(
        isinstance(entry, dict) for entry in entries.values()
    ):
        raise ValueError("its streams are not an object of objects")
    by_name = {plan.stream: plan for plan in plans}
    unknown = [name for name in entries if name not in by_name]
    if unknown:
        raise ValueError(f"it has streams {', '.join(unknown)}, which this run does not have")
    for plan in plans:
        bookmark_of(state, plan)
    return {
        name: StreamProgress.from_json(
            entry, by_name[name].replication_key, split_key(by_name[name], dialect)
        )
        for name, entry in entries.items()
    }


def _of_stream(plan: StreamPlan, dialect: Dialect) -> dict[str, Any]:
    columns = [
        replace(each, mask=each.mask.without_key) if each.mask else each for each in plan.columns
    ]
    table = [plan.table.schema, plan.table.name, plan.table.query]
    # The search for late rows may change. This is its fingerprint from before there were windows.
    left_out = {"late_window", "late_pages", "kept"}
    if not plan.renamed:
        # The fingerprint from before there were renamed columns.
        left_out.add("renamed")
    said = {name: value for name, value in _plain(plan).items() if name not in left_out}
    said["late_rows"] = "open" if plan.late_rows == "open" else "all"
    return {**said, "columns": columns, "table": table, "split": split_key(plan, dialect)}


def _plain(value: object) -> Any:
    """Convert what JSON has no form for.

    Values inside are converted in turn; `asdict` would copy them all, which takes 10 ms a stream.
    """
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: getattr(value, each.name) for each in fields(value)}
    return str(value)


def moment_of(
    server: SnapshotServer, snapshot: str | None, relations: str | None
) -> TableMoment | None:
    """The moment of a snapshot, given the server's text of it and the relations' digest; None
    without both.
    """
    if snapshot is None or relations is None:
        return None
    xmin, xmax = snapshot_numbers(snapshot)
    return TableMoment(
        TransactionSnapshot(server.system, xmin, xmax, timeline=server.timeline), relations
    )


def table_continued(
    extraction: Extraction, server: SnapshotServer | None, now: TableMoment | None
) -> Extraction:
    """The extraction of a whole table, with what a dead run has sent of it if none of these rows
    has changed.

    If nothing can be proven, a table that was read completely stays as it was then, and any other
    is read from its start.
    """
    progress = extraction.progress
    if not progress.begun:
        return replace(extraction, progress=replace(progress, moment=now))
    before = progress.moment
    if server is None or before is None or now is None:
        return extraction if progress.complete else extraction.from_the_start(_UNKNOWN, now)
    since = now.snapshot.xmax - before.snapshot.xmin
    same = before.snapshot.is_of(now.snapshot.system, now.snapshot.timeline)
    if not same or before.snapshot.xmax > now.snapshot.xmax or since >= FAR:
        return extraction.from_the_start(_OTHER, now)
    if before.relations != now.relations:
        return extraction.from_the_start(_REPLACED, now)
    if server.heaps(extraction.plan.table) is None:
        return extraction if progress.complete else extraction.from_the_start(_UNKNOWN, now)
    sent = _sent(extraction)
    late = LateRows(before.snapshot, now.snapshot.xmax, (sent,))
    old, new = _counted(extraction, late, sent)
    if old != progress.rows:
        return extraction.from_the_start(_CHANGED, now)
    if not new:
        return replace(extraction, progress=replace(progress, moment=now))
    return replace(extraction, sql=replace(extraction.sql, late=late), moment=now)


def _sent(extraction: Extraction) -> Slice[Point]:
    """The part of the table that the dead run has sent."""
    position, split = extraction.progress.split, extraction.sql.split
    if position is None or split is None:
        return Slice()
    return Slice(split=Range(None, extraction.bounds(split).point_of_bookmark(position.next)))


def _counted(extraction: Extraction, late: LateRows[Point], sent: Slice[Point]) -> tuple[int, int]:
    """The rows of the part that was sent: those surely visible then, and those added since."""
    sql, unseen = extraction.sql, late.unseen(WRITER)
    ((rows, new),) = extraction.connection.rows(
        f"SELECT CAST(COUNT(*) AS text) AS n, CAST(COUNT(CASE WHEN {unseen} THEN 1 END) AS text) "
        f"AS added {sql.source} AND {sql.condition(sent)}"
    )
    return int(rows or 0) - int(new or 0), int(new or 0)
