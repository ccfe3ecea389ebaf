"""`spark-lake state show | history | set | reset | restore`."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from typing import Any

from singer_spark.core.exact_json import to_json
from target_spark_lake.commit.run_reports import state_history, state_now
from target_spark_lake.ops import state_editing
from target_spark_lake.ops.command import (
    CONFIG,
    JSON,
    PROGRAM,
    Command,
    Lake,
    moment,
    show,
    table_of,
)

BOOKMARK = ("stream", "replication key", "value")


def _history(chosen: Namespace) -> None:
    lake = Lake.of(chosen)
    show(chosen, state_history(lake.storage, lake.layout), _history_table)


def _set_flags(parser: ArgumentParser) -> None:
    parser.add_argument("--stream", required=True, help="name of the stream")
    parser.add_argument(
        "--value", required=True, help="value of the replication key, checked against its type"
    )
    parser.add_argument(
        "--replication-key", metavar="COLUMN", help="key of a stream that never had a bookmark"
    )
    parser.add_argument(
        "--type", help="the key's type, where neither a bookmark nor the table shows it"
    )


def _set(chosen: Namespace) -> None:
    lake = Lake.of(chosen, has_run=chosen.replication_key is None)
    key = chosen.replication_key, chosen.type
    changed = state_editing.set_value(lake.open_run("state set"), chosen.stream, chosen.value, *key)
    _show(chosen, lake, changed=changed)


def _reset(chosen: Namespace) -> None:
    lake = Lake.of(chosen, has_run=True)
    _show(chosen, lake, changed=state_editing.reset(lake.open_run("state reset"), chosen.stream))


def _restore_flags(parser: ArgumentParser) -> None:
    parser.add_argument("run_id", metavar="run", help="id of the run, as `state history` shows it")
    parser.add_argument(
        "--before", action="store_true", help="the state that this run found, to undo what it did"
    )


def _restore(chosen: Namespace) -> None:
    lake = Lake.of(chosen, has_run=True)
    changed = state_editing.restore(
        lake.open_run("state restore"), chosen.run_id, before=chosen.before
    )
    _show(chosen, lake, changed=changed)


def _show(chosen: Namespace, lake: Lake, *, changed: bool = True) -> None:
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


A_RUN = "20251121T040000000000Z-0a1b2c3d"
STATE = (
    Command(
        "state show",
        "the state that the next run starts from",
        (f"state show {CONFIG}",),
        lambda chosen: _show(chosen, Lake.of(chosen)),
    ),
    Command(
        "state history",
        "each state with the run that saved it, newest first",
        (f"state history {CONFIG} --json",),
        _history,
    ),
    Command(
        "state set",
        "where the next run of a stream starts: rows from this value on",
        (
            f"state set {CONFIG} --stream public-orders --value 2025-01-20T15:30:00",
            f"state set {CONFIG} --stream public-events --value 1000 --replication-key id --type "
            "integer",
        ),
        _set,
        _set_flags,
    ),
    Command(
        "state reset",
        "the next run starts from the beginning",
        (f"state reset {CONFIG} --stream public-orders", f"state reset {CONFIG}"),
        _reset,
        lambda parser: parser.add_argument("--stream", help="only this stream's bookmark"),
    ),
    Command(
        "state restore",
        "make the state that a run saved the current one",
        (f"state restore {A_RUN} {CONFIG}", f"state restore {A_RUN} --before {CONFIG}"),
        _restore,
        _restore_flags,
    ),
)
