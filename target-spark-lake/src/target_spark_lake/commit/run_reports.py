"""Reports on a pipeline's runs and states from the bucket, as plain values for people and
programs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from singer_spark.core.config_file import nearest
from singer_spark.core.messages import timestamp_text
from singer_spark.errors import ConfigurationError
from singer_spark.state.choice import kept_elsewhere, location_of
from singer_spark.state.run_log import (
    COMMITTED,
    LAKE_FOLDER,
    PUBLISHED,
    RunEntry,
    folder_name,
    read_entry,
    run_ids,
)
from singer_spark.state.source import StateSource
from singer_spark.state.store import StateStore, same_state
from target_spark_lake.commit.journal import FAILED
from target_spark_lake.commit.lock import LockEntry, newest_entry
from target_spark_lake.error_codes import LakeCode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from singer_spark.store.storage import Storage
    from target_spark_lake.layout import Layout

JSON = dict[str, Any]
# Folders of the lake, in at least one of which every pipeline ever started has an object.
KINDS = ("locks", "runs", "state")
RUNNING = "running"
# The kind of a run of the target; for a run of `spark-lake` it is its command.
SYNC = "sync"
NOT_PUBLISHED = (
    "committed, but not published yet: the next run, or `spark-lake recover`, finishes it"
)


def check_has_run(storage: Storage, pipeline: str) -> None:
    """Refuse a pipeline that never ran in the lake.

    Raises:
        ConfigurationError: names the existing pipelines.
    """
    if any(storage.list(f"{LAKE_FOLDER}/{kind}/{folder_name(pipeline)}") for kind in KINDS):
        return
    known = pipelines(storage, *KINDS)
    near, listed = nearest(pipeline, known), ", ".join(known) or "none"
    raise ConfigurationError(
        LakeCode.PIPELINE_UNKNOWN,
        f"pipeline {pipeline} never ran in {storage.url}{near}; there are: {listed}",
    )


def pipelines(storage: Storage, *kinds: str) -> list[str]:
    """Sorted names of the pipelines with anything in these folders of the lake (`KINDS`)."""
    folders = [f"{LAKE_FOLDER}/{kind}" for kind in kinds]
    found = {file.path[len(folder) + 1 :] for folder in folders for file in storage.list(folder)}
    return sorted({unquote(path.partition("/")[0]) for path in found if "/" in path})


def entries(storage: Storage, layout: Layout) -> Iterator[RunEntry]:
    """All decided runs, newest first, read lazily."""
    for run_id in run_ids(storage, layout.runs):
        entry = read_entry(storage, layout.runs, run_id)
        if entry is not None:
            yield entry


def outcome_of(entry: RunEntry, lock: LockEntry | None) -> str:
    """Outcome of a decided run: a committed one is running while it publishes, and succeeds only
    after that.
    """
    if entry.phase != COMMITTED:
        return str(entry.body["outcome"])
    is_running = lock is not None and lock.run_id == entry.run_id and lock.is_held()
    return RUNNING if is_running else COMMITTED


def error_of(entry: RunEntry, outcome: str) -> str | None:
    """Why a run failed or is not published; None for a published run."""
    error: str | None = entry.body["error"]
    return error or NOT_PUBLISHED if outcome == COMMITTED else error


def state_now(storage: Storage, layout: Layout, store: StateStore) -> JSON:
    """The committed state and the run that saved it; nulls if there is none, or it was edited."""
    source = StateSource(store, storage, layout.pipeline)
    last = source.last
    if last is not None and store.location is None and location_of(last) is not None:
        # Edits made there can't be seen from here.
        raise kept_elsewhere(layout.pipeline, store, last)
    saved = source.saved
    run = source_of(storage, layout, saved.value) if saved else None
    return {
        "pipeline": layout.pipeline,
        "bookmarks": bookmarks(saved.value if saved else {}),
        "updated_at": run.body["committed_at"] if run else None,
        "run_id": run.run_id if run else None,
    }


def source_of(storage: Storage, layout: Layout, state: JSON) -> RunEntry | None:
    """The run that saved a state; None if it was edited by hand."""
    newest = next((entry for entry in entries(storage, layout) if entry.state is not None), None)
    return newest if newest is not None and same_state(newest.state, state) else None


def state_history(storage: Storage, layout: Layout) -> list[JSON]:
    """Each state with the run that saved it, newest first."""
    return [
        {
            "run_id": entry.run_id,
            "saved_at": entry.body["committed_at"],
            "bookmarks": bookmarks(entry.state),
        }
        for entry in entries(storage, layout)
        if entry.state is not None
    ]


def bookmarks(state: JSON) -> JSON:
    """The bookmarks of a state; for another tap's state without bookmarks, all of it."""
    value = state.get("bookmarks")
    return value if isinstance(value, dict) else state


def runs(storage: Storage, layout: Layout) -> list[JSON]:
    """The report of each run, newest first, including the run that holds the pipeline now."""
    lock = newest_entry(storage, layout)
    reports = {entry.run_id: _report(entry, lock) for entry in entries(storage, layout)}
    if lock is not None and not lock.released and lock.run_id not in reports:
        outcome, error = undecided(lock)
        reports[lock.run_id] = {
            "run_id": lock.run_id,
            "started_at": timestamp_text(lock.since),
            "finished_at": None,
            "kind": lock.command or SYNC,
            "outcome": outcome,
            "streams": {},
            "error": error,
        }
    return [reports[run_id] for run_id in sorted(reports, reverse=True)]


def _report(entry: RunEntry, lock: LockEntry | None) -> JSON:
    body, outcome = entry.body, outcome_of(entry, lock)
    return {
        "run_id": entry.run_id,
        "started_at": body["started_at"],
        "finished_at": body["finished_at"],
        "kind": body.get("command") or SYNC,
        "outcome": outcome,
        "streams": body["streams"] if entry.phase == PUBLISHED else {},
        "error": error_of(entry, outcome),
    }


def undecided(lock: LockEntry) -> tuple[str, str | None]:
    """Outcome and error of a run without a journal: running, or dead before its commit and not yet
    undone.
    """
    if lock.is_held():
        return RUNNING, None
    return FAILED, f"{lock.holder()} died; the next run, or `spark-lake recover`, cleans up"
