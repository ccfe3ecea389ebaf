"""What a run would meet where the lake is (`spark-lake check`): bucket, state, and space on the
disk.
"""

from __future__ import annotations

import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from singer_spark.engine.java import find_java_home
from singer_spark.errors import SingerSparkError
from singer_spark.program.amounts import size_text
from singer_spark.program.finding import NOTE, PROBLEM, Finding
from singer_spark.state.run_log import LAKE_FOLDER
from singer_spark.store.storage import SCRATCH
from target_spark_lake.ops.command import Lake

# Less space than this ends most runs.
LITTLE = 10**9
_FOLDER = f"{LAKE_FOLDER}/staging"


def lake_findings(lake: Lake) -> Iterator[Finding]:
    """Look at the place of a lake; what is written for that is removed again."""
    yield _bucket(lake)
    if lake.store.place is not None:
        yield _state(lake)
    folders = {"temporary files": Path(tempfile.gettempdir())}
    if lake.storage.local:
        folders["the lake"] = _existing(Path(lake.storage.url))
    for name, folder in folders.items():
        free = shutil.disk_usage(folder).free
        text = f"{size_text(free)} free for {name} in {folder}"
        yield Finding("space", text, NOTE if free < LITTLE else "ok")


def java_finding() -> Finding:
    """Which Java a JVM would be started from, for a config without a source to look at."""
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
            f"{lake.place} can be written; its conditional puts are not relied on: never start "
            "two runs at once"
        )
        return Finding("bucket", text, NOTE)
    return Finding("bucket", f"{lake.place} can be written, and its conditional puts hold")


def _state(lake: Lake) -> Finding:
    try:
        lake.store.content()
    except SingerSparkError as error:
        return Finding("state", str(error), PROBLEM)
    return Finding("state", f"kept in {lake.store.place}")


def _existing(folder: Path) -> Path:
    """The folder, or the nearest one above that is there."""
    return next(each for each in (folder, *folder.absolute().parents) if each.is_dir())
