"""`spark-lake state set | reset | restore`: a state set by a person, saved by a journalled run.

Each function takes an open run and ends it in any case; see `change_state` for further exceptions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from singer_spark.core.key_value import KeyValue
from singer_spark.errors import ConfigurationError
from singer_spark.state.run_log import ABORTED, RunEntry, read_entry
from singer_spark.store.storage import Storage
from target_spark_lake.commit.bookmark_key import BookmarkKey
from target_spark_lake.commit.pipeline_run import PipelineRun
from target_spark_lake.commit.run_reports import entries
from target_spark_lake.commit.saving import cleared
from target_spark_lake.commit.state_change import change_state
from target_spark_lake.layout import Layout
from target_spark_lake.ops.stream_key import KEY, VALUE, is_bookmark, key_of_stream

JSON = dict[str, Any]


def set_value(
    run: PipelineRun,
    stream: str,
    value: str,
    replication_key: str | None = None,
    key_type: str | None = None,
) -> bool:
    """Set where a stream's next run starts, or raise ConfigurationError.

    False if that is already the state.
    """
    return change_state(
        run, lambda saved: _with_value(run, saved or {}, stream, value, replication_key, key_type)
    )


def reset(run: PipelineRun, stream: str | None = None) -> bool:
    """Remove a stream's bookmark, or all; False if there is none.

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
            f"pipeline {run.layout.pipeline}: its state is the tap's own and has no bookmarks; "
            "edit the state itself"
        )
    bookmarks = state.setdefault("bookmarks", {})
    saved = bookmarks.get(stream)
    if saved is not None and not is_bookmark(saved):
        raise ConfigurationError(
            f"stream {stream}: its bookmark is not a single {VALUE}, it is in the tap's own form; "
            "edit the state itself"
        )
    key = key_of_stream(run, stream, saved, replication_key, key_type)
    try:
        value = key.value(text)
    except ValueError as error:
        raise ConfigurationError(f"stream {stream}: {error}") from None
    if saved is None or saved.get(KEY, key.name) != key.name or _saved_value(saved, key) != value:
        bookmarks[stream] = _bookmark(saved or {}, key, value)
    return state


def _bookmark(saved: Mapping[str, Any], key: BookmarkKey, value: KeyValue) -> JSON:
    """A bookmark as a person would write it.

    Which rows were sent at the value is no longer known.
    """
    bookmark: JSON = {KEY: key.name, VALUE: value.json_value()}
    # Rows of transactions that were open are still to come; but they are not looked up if rows are
    # to be skipped.
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
            f"pipeline {pipeline} has no state yet, so none of stream {stream}"
        )
    bookmarks = state.get("bookmarks")
    if not isinstance(bookmarks, dict) or stream not in bookmarks:
        known = (
            ", ".join(sorted(bookmarks)) if isinstance(bookmarks, dict) and bookmarks else "none"
        )
        raise ConfigurationError(
            f"pipeline {pipeline} has no bookmark of stream {stream} (it has: {known})"
        )
    del bookmarks[stream]
    return state


def _state_of(storage: Storage, layout: Layout, run_id: str, *, before: bool) -> JSON:
    entry = None if "/" in run_id else read_entry(storage, layout.runs, run_id)
    if entry is None:
        raise ConfigurationError(
            f"pipeline {layout.pipeline} has no run {run_id}; `spark-lake state history` names "
            "those that saved a state"
        )
    if entry.phase == ABORTED:
        raise ConfigurationError(
            f"run {run_id} {entry.body['outcome'].replace('_', ' ')}: it saved no state"
        )
    if before:
        return entry.body.get("previous_state") or {}
    if entry.state is None:
        left = _saved_before(storage, layout, run_id)
        raise ConfigurationError(f"run {run_id} saved no state: it left {left}")
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
    return (
        f"the one of run {older.run_id} as it was; restore that one"
        if older
        else "the one it found as it was"
    )
