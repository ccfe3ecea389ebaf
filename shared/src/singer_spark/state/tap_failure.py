"""Why a tap failed, left where the target of its pipe finds and records it once the input ends.

`spark-lake run` names a file for it in the environment of both programs. Otherwise it is an object
beside the lake's state, which only a failed run reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from singer_spark.core.messages import timestamp_text
from singer_spark.errors import SingerSparkError
from singer_spark.state.run_log import LAKE_FOLDER, decode, encode, folder_name

if TYPE_CHECKING:
    from singer_spark.store.storage import Storage

# Names the file under `spark-lake run`.
FAILURE_VARIABLE = "SPARK_LAKE_TAP_FAILURE"
# A tap may fail before the target of its pipe has begun; anything older belongs to another run.
EARLIER = timedelta(seconds=60)


def failure_path(pipeline: str) -> str:
    """The object of a pipeline in its bucket."""
    return f"{LAKE_FOLDER}/state/{folder_name(pipeline)}/tap_failure.json"


def leave_failure(
    reason: str, lake: Storage | None, pipeline: str, environ: Mapping[str, str]
) -> None:
    """Leave why the tap failed, in one line without secrets.

    Raises nothing, because the tap already has an error to report.
    """
    data = encode({"error": reason, "failed_at": timestamp_text(datetime.now(UTC))})
    with suppress(SingerSparkError, OSError):
        if file := environ.get(FAILURE_VARIABLE):
            Path(file).write_bytes(data)
        elif lake is not None and pipeline:
            lake.replace(failure_path(pipeline), data)


def take_failure(
    lake: Storage, pipeline: str, environ: Mapping[str, str], since: datetime
) -> str | None:
    """Take away why the tap failed whose target began at `since`; None if it left nothing.

    Raises nothing, because the target already has an error to record.
    """
    with suppress(SingerSparkError, OSError, KeyError, ValueError):
        if file := environ.get(FAILURE_VARIABLE):
            return str(decode(Path(file).read_bytes(), file)["error"])
        path = failure_path(pipeline)
        data = lake.read(path)
        if data is None:
            return None
        lake.delete(path)
        body = decode(data, path)
        return (
            str(body["error"])
            if datetime.fromisoformat(body["failed_at"]) > since - EARLIER
            else None
        )
    return None
