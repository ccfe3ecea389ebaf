"""`spark-lake log drop`."""

from __future__ import annotations

import importlib
import sys
from argparse import Namespace
from typing import Any

from singer_spark.errors import ConfigurationError
from target_spark_lake.commit.pipeline_run import change_state
from target_spark_lake.error_codes import LakeCode
from target_spark_lake.ops.command import (
    CONFIG,
    JSON,
    Command,
    Lake,
    add_tap_config,
    show,
    tap_config,
)

# By name only: neither package imports the other.
SOURCE_MODULE = "tap_spark_jdbc.verify.log_removal"
LOG_BASED = "LOG_BASED"


def _drop_log(chosen: Namespace) -> None:
    lake = Lake.of(chosen)
    tap, from_environment = tap_config(chosen)
    removed: list[str] = []

    def without_log(saved: JSON | None) -> JSON | None:
        removed.extend(
            _removal()(tap, saved or {}, lake.layout.pipeline, from_environment=from_environment)
        )
        bookmarks = (saved or {}).get("bookmarks")
        if saved is None or not isinstance(bookmarks, dict):
            return saved
        kept = {name: each for name, each in bookmarks.items() if not _is_of_log(each)}
        return {**saved, "bookmarks": kept}

    change_state(lake.open_run("log drop"), without_log)
    show(chosen, {"removed": removed}, lambda found: _dropped_text(found["removed"]))


def _removal() -> Any:
    try:
        return importlib.import_module(SOURCE_MODULE).drop_log
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith(SOURCE_MODULE.partition(".")[0]):
            raise
        raise ConfigurationError(
            LakeCode.PROGRAM_MISSING,
            "slot and publication are removed by tap-spark-jdbc, which is not installed for "
            f"{sys.executable}: install it beside the target",
        ) from error


def _is_of_log(bookmark: object) -> bool:
    return isinstance(bookmark, dict) and bookmark.get("replication_method") == LOG_BASED


def _dropped_text(removed: list[str]) -> str:
    gone = " and ".join(removed)
    return (
        f"Removed {gone}; the bookmarks of its streams, too."
        if removed
        else "There is nothing to drop on the server."
    )


LOG_DROP = Command(
    "log drop",
    "remove the slot and the publication of LOG_BASED streams, and their bookmarks, when the "
    "pipeline is retired",
    (f"log drop {CONFIG} --tap-config tap.json",),
    _drop_log,
    add_tap_config,
)
