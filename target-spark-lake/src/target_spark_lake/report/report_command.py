"""`spark-lake report`: reads what the bucket knows, and writes the page."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from singer_spark.errors import ConfigurationError
from singer_spark.state.backend import open_state_store
from singer_spark.storage.whole_file import write_whole
from target_spark_lake.commit.run_reports import pipelines
from target_spark_lake.layout import Layout
from target_spark_lake.report.page import report_page
from target_spark_lake.report.run_history import read_history

if TYPE_CHECKING:
    from singer_spark.storage.storage import Storage
    from target_spark_lake.settings import TargetSettings

NEWEST_RUNS = 1000


def write_report(
    storage: Storage, settings: TargetSettings, output: str, *, pipeline: str | None, newest: int = NEWEST_RUNS
) -> dict[str, Any]:
    """Writes the page about a pipeline, or about all of the bucket.

    Args:
        storage: The bucket.
        settings: The target's.
        output: The file to write; one that stands there is replaced once the new one is whole.
        pipeline: Its name; None: all pipelines that ever ran.
        newest: So many runs of each pipeline count, the newest.

    Returns:
        Where it is, and what is in it.

    Raises:
        ConfigurationError: the file can't be written.
        StorageError: the bucket can't be read.
        StateError: a saved state is malformed.
    """
    backend = settings.state_backend
    histories = [
        read_history(storage, Layout(each, settings.path), open_state_store(backend, storage, each), newest)
        for each in (pipelines(storage, "runs") if pipeline is None else [pipeline])
    ]
    page = report_page(_without_user(storage.url), histories, datetime.now(UTC))
    path = Path(output).expanduser()
    try:
        write_whole(path, page.encode())
    except OSError as error:
        raise ConfigurationError(f"can't write the report to {output}: {error.strerror}") from error
    runs = {history.pipeline: len(history.runs) for history in histories}
    return {"output": str(path), "bytes": len(page.encode()), "runs": runs}


def _without_user(url: str) -> str:
    """A URL without the user and password that it may name."""
    return re.sub(r"(?<=://)[^/@]*@", "", url)
