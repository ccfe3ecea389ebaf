"""`spark-lake state show | history | set | reset | restore`. A state set by hand is saved by a
journalled run.

Each function that changes the state takes an open run and ends it in any case; see `change_state`
for further exceptions.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import click

from singer_spark.core.exact_json import to_json
from singer_spark.core.key_value import KeyValue
from singer_spark.errors import ConfigurationError
from singer_spark.state.run_log import ABORTED, RunEntry, read_entry
from singer_spark.store.storage import Storage
from target_spark_lake.commit.bookmarks import (
    BookmarkKey,
    key_of_bookmark,
    key_of_column,
    key_of_type,
)
from target_spark_lake.commit.pipeline_run import PipelineRun, change_state
from target_spark_lake.commit.run_reports import entries, state_history, state_now
from target_spark_lake.commit.saved_state import cleared
from target_spark_lake.error_codes import LakeCode
from target_spark_lake.layout import Layout
from target_spark_lake.ops.command import (
    JSON,
    PROGRAM,
    Chosen,
    Group,
    Lake,
    moment,
    show,
    subcommand,
    table_of,
)
from target_spark_lake.table.table_record import records_of

KEY, VALUE = "replication_key", "replication_key_value"
BOOKMARK = ("stream", "replication key", "value")
A_RUN = "20251121T040000000000Z-0a1b2c3d"


def is_bookmark(entry: Any) -> bool:
    """Whether an entry holds one value of a replication key, as those of tap and SDK do."""
    if not isinstance(entry, dict) or "partitions" in entry:
        return False
    # Some taps have lists of keys and values.
    return isinstance(entry.get(KEY), str | None) and not isinstance(
        entry.get(VALUE), list | dict | None
    )


def key_of_stream(
    run: PipelineRun,
    stream: str,
    saved: JSON | None,
    replication_key: str | None,
    key_type: str | None,
) -> BookmarkKey:
    """The stream's key: as given, or of its bookmark, an older one, or the table's column.

    Raises:
        ConfigurationError: none of these shows it.
    """
    known, source = saved, "as its bookmark shows"
    if known is None:
        known, source = _older_bookmark(run, stream), "as its last bookmark said"
    name = replication_key or (known or {}).get(KEY)
    if name is None:
        raise ConfigurationError(
            LakeCode.NO_BOOKMARK,
            f"stream {stream}: it never had a bookmark{_known_streams(run)}; if the name is right, "
            "name its key: --replication-key COLUMN --type TYPE",
        )
    if key_type is not None:
        return key_of_type(name, key_type)
    columns = _columns(run, stream)
    found = None
    if known is not None and known.get(KEY, name) == name:
        found = key_of_bookmark(name, known[VALUE], columns, f"{source}: {known[VALUE]}")
    found = found or key_of_column(name, columns)
    if found is None:
        raise ConfigurationError(
            LakeCode.BAD_BOOKMARK,
            f"stream {stream}: neither a bookmark nor the table shows the type of {name}; give it "
            "by --type TYPE",
        )
    return found


def _older_bookmark(run: PipelineRun, stream: str) -> JSON | None:
    for entry in entries(run.storage, run.layout):
        bookmarks = (entry.state or {}).get("bookmarks")
        saved = bookmarks.get(stream) if isinstance(bookmarks, dict) else None
        if isinstance(saved, dict) and is_bookmark(saved):
            return saved
    return None


def _columns(run: PipelineRun, stream: str) -> Mapping[str, str]:
    """Columns of the stream's table, name to Spark's name of the type; empty if it has no table."""
    records = records_of(run.storage, run.layout.pipeline).values()
    return next((record.columns for record in records if record.stream == stream), {})


def _known_streams(run: PipelineRun) -> str:
    bookmarks = (run.committed_state() or {}).get("bookmarks")
    tables = records_of(run.storage, run.layout.pipeline).values()
    known = sorted({*(bookmarks or {}), *(record.stream for record in tables)})
    return f" (streams of pipeline {run.layout.pipeline}: {', '.join(known)})" if known else ""


def set_value(
    run: PipelineRun,
    stream: str,
    value: str,
    replication_key: str | None = None,
    key_type: str | None = None,
) -> bool:
    """Set where a stream's next run starts, or raise ConfigurationError; returns False if that is
    already the state.
    """
    return change_state(
        run, lambda saved: _with_value(run, saved or {}, stream, value, replication_key, key_type)
    )


def reset(run: PipelineRun, stream: str | None = None) -> bool:
    """Remove a stream's bookmark, or all; returns False if there are none.

    ConfigurationError: the stream has none.
    """
    return change_state(run, lambda saved: _without(saved, stream, run.layout.pipeline))


def restore(run: PipelineRun, run_id: str, *, before: bool = False) -> bool:
    """Make the state that a run saved (or, `before`, found) the current one, or raise
    ConfigurationError.
    """
    return change_state(run, lambda _: _state_of(run.storage, run.layout, run_id, before=before))


def _with_value(
    run: PipelineRun,
    state: JSON,
    stream: str,
    text: str,
    replication_key: str | None,
    key_type: str | None,
) -> JSON:
    if state and not isinstance(state.get("bookmarks"), dict):
        raise ConfigurationError(
            LakeCode.NO_BOOKMARK,
            f"pipeline {run.layout.pipeline}: its state is the tap's own and has no bookmarks; "
            "edit the state itself",
        )
    bookmarks = state.setdefault("bookmarks", {})
    saved = bookmarks.get(stream)
    if saved is not None and not is_bookmark(saved):
        raise ConfigurationError(
            LakeCode.BAD_BOOKMARK,
            f"stream {stream}: its bookmark is not a single {VALUE}, it is in the tap's own form; "
            "edit the state itself",
        )
    key = key_of_stream(run, stream, saved, replication_key, key_type)
    try:
        value = key.value(text)
    except ValueError as error:
        raise ConfigurationError(LakeCode.BAD_BOOKMARK, f"stream {stream}: {error}") from None
    if saved is None or saved.get(KEY, key.name) != key.name or _saved_value(saved, key) != value:
        bookmarks[stream] = _bookmark(saved or {}, key, value)
    return state


def _bookmark(saved: Mapping[str, Any], key: BookmarkKey, value: KeyValue) -> JSON:
    """A bookmark as a user would write it; which rows were sent at the value is no longer known."""
    bookmark: JSON = {KEY: key.name, VALUE: value.json_value()}
    # Rows of transactions that were open are still to come, but they are not looked up if rows
    # should be skipped.
    if "snapshot" in saved and saved.get(KEY) == key.name:
        before = _saved_value(saved, key)
        if before is not None and value <= before:
            bookmark["snapshot"] = saved["snapshot"]
    return bookmark


def _saved_value(saved: Mapping[str, Any], key: BookmarkKey) -> KeyValue | None:
    """The value of a bookmark; None if it is not a value of the key."""
    try:
        return key.value(str(saved[VALUE]))
    except ValueError:
        return None


def _without(state: JSON | None, stream: str | None, pipeline: str) -> JSON | None:
    if stream is None:
        return cleared(state)
    if state is None:
        raise ConfigurationError(
            LakeCode.NO_BOOKMARK,
            f"pipeline {pipeline} has no state yet, so none of stream {stream}",
        )
    bookmarks = state.get("bookmarks")
    if not isinstance(bookmarks, dict) or stream not in bookmarks:
        known = (
            ", ".join(sorted(bookmarks)) if isinstance(bookmarks, dict) and bookmarks else "none"
        )
        raise ConfigurationError(
            LakeCode.NO_BOOKMARK,
            f"pipeline {pipeline} has no bookmark of stream {stream} (it has: {known})",
        )
    del bookmarks[stream]
    return state


def _state_of(storage: Storage, layout: Layout, run_id: str, *, before: bool) -> JSON:
    entry = None if "/" in run_id else read_entry(storage, layout.runs, run_id)
    if entry is None:
        raise ConfigurationError(
            LakeCode.PIPELINE_UNKNOWN,
            f"pipeline {layout.pipeline} has no run {run_id}; `spark-lake state history` names "
            "those that saved a state",
        )
    if entry.phase == ABORTED:
        raise ConfigurationError(
            LakeCode.NO_BOOKMARK,
            f"run {run_id} {entry.body['outcome'].replace('_', ' ')}: it saved no state",
        )
    if before:
        return entry.body.get("previous_state") or {}
    if entry.state is None:
        left = _saved_before(storage, layout, run_id)
        raise ConfigurationError(
            LakeCode.NO_BOOKMARK, f"run {run_id} saved no state: it left {left}"
        )
    return entry.state


def _saved_before(storage: Storage, layout: Layout, run_id: str) -> str:
    older: RunEntry | None = next(
        (
            each
            for each in entries(storage, layout)
            if each.run_id < run_id and each.state is not None
        ),
        None,
    )
    if older is None:
        return "the one it found as it was"
    return f"the one of run {older.run_id} as it was; restore that one"


@subcommand("show", "state show")
def show_command(chosen: Chosen) -> None:
    """The state that the next run starts from."""
    _show(chosen, Lake.of(chosen))


@subcommand("history", "state history --json")
def history_command(chosen: Chosen) -> None:
    """Each state with the run that saved it, newest first."""
    lake = Lake.of(chosen)
    show(chosen, state_history(lake.storage, lake.layout), _history_table)


@subcommand(
    "set",
    "state set --stream public-orders --value 2025-01-20T15:30:00",
    "state set --stream public-events --value 1000 --replication-key id --type integer",
)
@click.option("--stream", required=True, help="name of the stream")
@click.option(
    "--value", required=True, help="value of the replication key, checked against its type"
)
@click.option(
    "--replication-key", metavar="COLUMN", help="key of a stream that never had a bookmark"
)
@click.option(
    "--type", "key_type", help="the key's type, where neither a bookmark nor the table shows it"
)
def set_command(
    chosen: Chosen, stream: str, value: str, replication_key: str | None, key_type: str | None
) -> None:
    """Where the next run of a stream starts: rows from this value on."""
    lake = Lake.of(chosen, has_run=replication_key is None)
    changed = set_value(lake.open_run("state set"), stream, value, replication_key, key_type)
    _show(chosen, lake, changed=changed)


@subcommand("reset", "state reset --stream public-orders", "state reset")
@click.option("--stream", help="only this stream's bookmark")
def reset_command(chosen: Chosen, stream: str | None) -> None:
    """The next run starts from the beginning."""
    lake = Lake.of(chosen, has_run=True)
    _show(chosen, lake, changed=reset(lake.open_run("state reset"), stream))


@subcommand("restore", f"state restore {A_RUN}", f"state restore {A_RUN} --before")
@click.argument("run")
@click.option("--before", is_flag=True, help="the state that this run found, to undo what it did")
def restore_command(chosen: Chosen, run: str, *, before: bool) -> None:
    """Make the state that a run saved the current one.

    RUN is the id of the run, as `state history` shows it.
    """
    lake = Lake.of(chosen, has_run=True)
    _show(chosen, lake, changed=restore(lake.open_run("state restore"), run, before=before))


def _show(chosen: Chosen, lake: Lake, *, changed: bool = True) -> None:
    now = state_now(lake.storage, lake.layout, lake.store)
    show(chosen, now, lambda state: table_of(_rows(state["bookmarks"]), BOOKMARK))
    if not changed:
        pipeline = lake.layout.pipeline
        sys.stderr.write(
            f"{PROGRAM}: pipeline {pipeline}: that is the state already, nothing was changed\n"
        )


def _history_table(history: list[JSON]) -> Any:
    rows = [
        (saved["run_id"], moment(saved["saved_at"]), *row)
        for saved in history
        for row in _rows(saved["bookmarks"])
    ]
    return table_of(rows, ("run", "saved", *BOOKMARK))


def _rows(bookmarks: JSON) -> list[tuple[object, ...]]:
    """A line for each bookmark, or one line saying that there is none."""
    return [(stream, *_cells(each)) for stream, each in bookmarks.items()] or [
        ("no bookmark", None, None)
    ]


def _cells(bookmark: Any) -> tuple[object, object]:
    if isinstance(bookmark, dict) and "replication_key_value" in bookmark:
        return bookmark.get("replication_key"), bookmark["replication_key_value"]
    return None, to_json(bookmark)


state_commands = Group(
    "state",
    help="The pipeline's saved state.",
    commands=[show_command, history_command, set_command, reset_command, restore_command],
)
