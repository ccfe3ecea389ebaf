"""`spark-lake check`."""

from __future__ import annotations

import logging
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from singer_spark.compared_source import NOTE, OK, PROBLEM, Finding
from singer_spark.core.config_file import usual_config
from singer_spark.engine.java import find_java_home
from singer_spark.errors import SingerSparkError, redact, redact_logs
from singer_spark.program.amounts import count_text, size_text
from singer_spark.state.run_log import LAKE_FOLDER
from singer_spark.store.storage import SCRATCH
from target_spark_lake.ops.command import (
    JSON,
    Chosen,
    Lake,
    read_config,
    read_tap_config,
    show,
    subcommand,
    tap_config_option,
    tap_module,
)
from target_spark_lake.ops.source_tables import SourceTable, suggestions

# Less space than this ends most runs.
LITTLE = 10**9
_FOLDER = f"{LAKE_FOLDER}/staging"


def lake_findings(lake: Lake) -> Iterator[Finding]:
    """Examine the place of a lake; what is written for that is removed again."""
    yield _bucket(lake)
    if lake.store.location is not None:
        yield _state(lake)
    folders = {"temporary files": Path(tempfile.gettempdir())}
    if lake.storage.local:
        folders["the lake"] = _existing(Path(lake.storage.url))
    for name, folder in folders.items():
        free = shutil.disk_usage(folder).free
        text = f"{size_text(free)} free for {name} in {folder}"
        yield Finding("space", text, NOTE if free < LITTLE else "ok")


def java_finding() -> Finding:
    """Which Java a JVM would be started from, for a config without a source to examine."""
    try:
        return Finding("engine", f"Java in {find_java_home()}")
    except SingerSparkError as error:
        return Finding("engine", str(error), PROBLEM)


def _bucket(lake: Lake) -> Finding:
    """Whether the bucket can be written, and decides between two runs."""
    path, bucket = f"{_FOLDER}/check-{secrets.token_hex(8)}.json", lake.storage
    root = Path(bucket.url)
    missing = bucket.local and not root.is_dir()
    try:
        bucket.create(path, b"{}")
        try:
            bucket.check_conditions(path, b'{"written": "over it"}')
        finally:
            bucket.delete(path)
            if bucket.local:
                bucket.remove_empty((SCRATCH, _FOLDER, LAKE_FOLDER))
            if missing:
                root.rmdir()
    except SingerSparkError as error:
        return Finding("bucket", str(error), PROBLEM)
    if bucket.accept_unconditional and not bucket.local:
        text = (
            f"{lake.location} can be written; its conditional puts are not relied on: never start "
            "two runs at once"
        )
        return Finding("bucket", text, NOTE)
    return Finding("bucket", f"{lake.location} can be written, and its conditional puts work")


def _state(lake: Lake) -> Finding:
    try:
        lake.store.content()
    except SingerSparkError as error:
        return Finding("state", str(error), PROBLEM)
    return Finding("state", f"kept in {lake.store.location}")


def _existing(folder: Path) -> Path:
    """The folder, or the nearest one above that is there."""
    return next(each for each in (folder, *folder.absolute().parents) if each.is_dir())


MARKS = {OK: "✓", NOTE: "!", PROBLEM: "✗"}


@subcommand(
    "check", "check", "check --tap-config tap-books.json --config target-books.json", "check --json"
)
@tap_config_option
def check_command(chosen: Chosen, tap_config: Sequence[str]) -> int:
    """Check database, permissions, keys, log, bucket and disk before a run; exit code 1 if one of
    them would stop it.
    """
    logging.basicConfig(level="DEBUG" if chosen.log_level == "debug" else "ERROR")
    redact_logs()
    findings: list[Finding] = []
    target: JSON | None = None
    try:
        target = read_config(chosen.config)
        lake = Lake.of(chosen)
    except SingerSparkError as error:
        findings.append(Finding("settings", str(error), PROBLEM))
    else:
        findings += lake_findings(lake)
        target = {**target, "pipeline": lake.layout.pipeline}
    found, streams = _source(tap_config, target)
    findings = [*found, *findings]
    keys = suggestions([SourceTable.of(each) for each in streams])
    shown = {"findings": [asdict(each) for each in findings], "suggested_keys": keys}
    show(chosen, shown, lambda each: redact("\n".join(lines_of(each))))
    return int(any(each.outcome == PROBLEM for each in findings))


def _source(
    named: Sequence[str], target: JSON | None
) -> tuple[list[Finding], Sequence[Mapping[str, Any]]]:
    """What was found in the source, and the streams of its catalog."""
    try:
        if not named and not Path(usual_config("tap")).exists():
            text = (
                "there is no tap.json here, so the source was not checked; name its config by "
                "--tap-config"
            )
            return [Finding("database", text, NOTE), java_finding()], ()
        config, from_environment = read_tap_config(named)
        if (tap := tap_module("source_check")) is None:
            text = (
                "tap-spark-jdbc is not installed beside this program, so the source was not checked"
            )
            return [Finding("database", text, NOTE), java_finding()], ()
        whole = target if target and target.get("bucket") and target.get("pipeline") else None
        checked = tap.check_source(config, whole, from_environment=from_environment)
    except SingerSparkError as error:
        return [Finding("settings", str(error), PROBLEM)], ()
    return list(checked.findings), checked.streams


def lines_of(report: JSON) -> list[str]:
    """The report's lines, for people; problems come last, where they are seen."""
    found = [Finding(**each) for each in report["findings"]]
    order = (OK, NOTE, PROBLEM)
    found.sort(key=lambda each: order.index(each.outcome))
    lines = [f"{MARKS[each.outcome]} {each.about}: {each.text}" for each in found]
    if report["suggested_keys"]:
        lines.append(
            f"{MARKS[NOTE]} keys: these tables are read whole by each run; to read only what is "
            "new:"
        )
        lines += [f"    {each}" for each in report["suggested_keys"]]
    problems = sum(each.outcome == PROBLEM for each in found)
    ending = f"{count_text(problems, 'problem')}: see above" if problems else "A run can start."
    return [*lines, ending]
