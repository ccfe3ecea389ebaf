"""What `spark-lake` shows to people: its reports as tables and lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from singer_spark.singer.exact_json import to_json
from target_spark_lake.report.age import age_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

JSON = dict[str, Any]


def table_of(rows: Sequence[Sequence[object]], *columns: str) -> RenderableType:
    """A plain table; a run's id in it is never cut."""
    from rich.box import SIMPLE
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE, pad_edge=False)
    for column in columns:
        # A run's id is for copying: never cut.
        table.add_column(column, no_wrap=column == "run", overflow="fold")
    for row in rows:
        table.add_row(*(Text("" if cell is None else str(cell)) for cell in row))
    return table


def status_table(pipelines: list[JSON]) -> RenderableType:
    """Of `pipeline_status.status`, a line for each pipeline."""
    from rich.console import Group
    from rich.text import Text

    if not pipelines:
        return Text("No pipeline has run in this bucket.")
    columns = ["pipeline", "last run", "last success", "rows", "oldest watermark"]
    rows: list[tuple[object, ...]] = [
        (each["pipeline"], *_outcome_cells(each), *_stream_cells(each["streams"])) for each in pipelines
    ]
    lags = [_lag_text(each["streams"]) for each in pipelines]
    if any(lags):
        columns.append("behind the source")
        rows = [(*row, lag) for row, lag in zip(rows, lags, strict=True)]
    return Group(table_of(rows, *columns), *map(Text, filter(None, map(_small_files_text, pipelines))))


def _small_files_text(pipeline: JSON) -> str:
    """Names a pipeline's tables that have many small files; empty where there are none."""
    tables = [each for stream in pipeline["streams"].values() for each in stream.get("small_files", {}).items()]
    told = ", ".join(f"{table} has {count:,} small files" for table, count in tables)
    way_out = "`spark-lake compact` joins them, and with `auto_compact: true` each run does"
    return told and f"pipeline {pipeline['pipeline']}: {told}; {way_out}"


def _outcome_cells(pipeline: JSON) -> tuple[object, object]:
    now = "running" if pipeline["running"] else None
    last = " · ".join(dict.fromkeys(part for part in (pipeline["outcome"], now) if part))
    ago = "never" if pipeline["age_seconds"] is None else f"{age_text(pipeline['age_seconds'])} ago"
    return last or "none", ago


def _stream_cells(streams: JSON) -> tuple[object, object]:
    aged = {name: each for name, each in streams.items() if each.get("watermark_age_seconds") is not None}
    oldest = max(aged, key=lambda name: int(aged[name]["watermark_age_seconds"]), default=None)
    rows = sum(each.get("records", 0) for each in streams.values())
    rejected = sum(each.get("rejected", 0) for each in streams.values())
    watermark = None if oldest is None else f"{oldest}: {age_text(aged[oldest]['watermark_age_seconds'])} ago"
    return f"{rows:,}" + (f", {rejected:,} rejected" if rejected else ""), watermark


def _lag_text(streams: JSON) -> str:
    """Each stream that the tap was asked about."""
    told = []
    for name, each in streams.items():
        if "rows_to_read" in each:
            seconds = each["lag_seconds"]
            time = "" if seconds is None else f"{age_text(seconds)}, "
            told.append(f"{name}: {time}about {each['rows_to_read']:,} rows to read")
    return "\n".join(told)


def runs_table(reports: list[JSON]) -> RenderableType:
    """Of `run_reports.runs`."""
    from rich.console import Group
    from rich.text import Text

    rows = [(run["run_id"], _moment(run["started_at"]), run["outcome"], _streams_text(run)) for run in reports]
    errors = [Text(f"{run['run_id']}: {run['error']}") for run in reports if run["error"]]
    return Group(table_of(rows, "run", "started", "outcome", "streams"), *errors)


def _moment(text: str) -> str:
    """A moment to the second, for people."""
    return text[:19] + "Z"


def _streams_text(run: JSON) -> str:
    return "\n".join(
        f"{name}: {stream['records']} records" + (f", {stream['rejected']} rejected" if stream["rejected"] else "")
        for name, stream in run["streams"].items()
    )


def state_table(state: JSON) -> RenderableType:
    """Of `run_reports.state_now`."""
    return table_of(_bookmark_rows(state["bookmarks"]), "stream", "replication key", "value")


def history_table(history: list[JSON]) -> RenderableType:
    """Of `run_reports.state_history`."""
    rows = [
        (saved["run_id"], _moment(saved["saved_at"]), stream, *cells)
        for saved in history
        for stream, *cells in _bookmark_rows(saved["bookmarks"])
    ]
    return table_of(rows, "run", "saved", "stream", "replication key", "value")


def _bookmark_rows(bookmarks: JSON) -> list[tuple[object, ...]]:
    """A line for each; one that says so where there is none."""
    return [(stream, *_bookmark_cells(each)) for stream, each in bookmarks.items()] or [("no bookmark", None, None)]


def _bookmark_cells(bookmark: Any) -> tuple[object, object]:
    if isinstance(bookmark, dict) and "replication_key_value" in bookmark:
        return bookmark.get("replication_key"), bookmark["replication_key_value"]
    return None, to_json(bookmark)


def conversion_text(report: JSON) -> RenderableType:
    """Of the tables that were converted."""
    from rich.text import Text

    if not report["converted"]:
        return Text("All of these tables are Delta tables already.")
    return Text(f"Now Delta tables: {', '.join(report['converted'])}. Set `format: delta` in the target's config.")


def compaction_table(report: JSON) -> RenderableType:
    """Of the tables that were compacted."""
    from rich.text import Text

    if not report["tables"]:
        return Text("Nothing to do: no small files lie side by side.")
    rows = [
        (
            each["table"],
            f"{each['retired']} → {each['published']}",
            f"{each['retired_bytes']:,} → {each['published_bytes']:,}",
        )
        for each in report["tables"]
    ]
    return table_of(rows, "table", "files", "bytes")


def recovery_text(report: JSON) -> RenderableType:
    """Of what was finished and undone."""
    from rich.text import Text

    finished = f"finished run {report['finished']}" if report["finished"] else ""
    undone = ", ".join(f"undid run {run_id}" for run_id in report["rolled_back"])
    done = ", ".join(part for part in (finished, undone) if part) or "nothing was left to do"
    kept = f" The next run goes on from what run {report['can_continue']} staged." if "can_continue" in report else ""
    return Text(f"Pipeline {report['pipeline']} is free: {done}.{kept}{_given_up_text(report)}")


def _given_up_text(report: JSON) -> str:
    """What was lost, stream by stream, where a run was to be given up."""
    if "given_up" not in report:
        return ""
    told = report["given_up"]
    if told is None:
        return "\nNothing was given up: the run could be published, so it was."
    lines = [
        f"\nRun {told['run_id']} is given up, by run {told['by']}; the state before it counts again. {told['reason']}"
    ]
    for stream, loss in told["streams"].items():
        gone = f"{loss['lost_rows']:,} rows in {loss['lost_files']:,} file(s) lost"
        back = f"{loss['taken_back_rows']:,} rows in {loss['taken_back_files']:,} file(s) taken back"
        lines.append(f"  {stream}: {gone}, {back}")
    return "\n".join([*lines, "The next run starts from the state before, and brings what its source still has."])
