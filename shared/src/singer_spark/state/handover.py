"""What the programs of a pipeline hand to each other: Meltano's state backend tells the tap where
the state is, and a failed tap tells the target why it failed.

Meltano gives a tap a copy of the state as a file, or none. Without one, it is unclear whether there
is no state yet or none is wanted. The location itself shows that, and has the checkpoint beside it.
The backend is only asked for a state if one is wanted, so whether it sets the variable shows that,
too. Every plugin gets Meltano's environment. So the variable only names the pipeline; settings that
may contain secrets are in a file that only this user can read, and that is removed with Meltano's
process.

Why a tap failed is left where the target of its pipe finds and records it once the input ends.
`spark-lake run` names a file for it in the environment of both programs. Otherwise it is an object
beside the lake's state, which only a failed run reads.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from singer_spark.core.messages import timestamp_text
from singer_spark.core.scratch import scratch_folder
from singer_spark.error_codes import RunCode
from singer_spark.errors import ConfigurationError, SingerSparkError
from singer_spark.state.run_log import LAKE_FOLDER, decode, encode, folder_name

if TYPE_CHECKING:
    from singer_spark.store.storage import Storage

STATE_VARIABLE = "SPARK_LAKE_STATE"
PLAIN = ("bucket", "pipeline")
REST = "rest"
# Names the file under `spark-lake run`.
FAILURE_VARIABLE = "SPARK_LAKE_TAP_FAILURE"
# A tap may fail before the target of its pipe has begun; anything older belongs to another run.
EARLIER = timedelta(seconds=60)


def hand_over(location: Mapping[str, Any], environ: MutableMapping[str, str]) -> None:
    """Put the location, by the target's settings for it, into the environment of programs started
    from here on.

    Raises:
        ConfigurationError: there is no folder for temporary files.
    """
    file = scratch_folder() / "handed-state.json"
    file.write_text(
        json.dumps({name: value for name, value in location.items() if name not in PLAIN})
    )
    handed = {**{name: location[name] for name in PLAIN}, REST: str(file)}
    # Meltano takes a dollar sign in a variable for a reference to another one.
    environ[STATE_VARIABLE] = json.dumps(handed).replace("$", "\\u0024")


def handed_over(environ: Mapping[str, str]) -> dict[str, Any] | None:
    """The location that was handed over; None if there is none.

    Raises:
        ConfigurationError: it is not as it was handed over.
    """
    text = environ.get(STATE_VARIABLE)
    if not text:
        return None
    try:
        handed = dict(json.loads(text))
        file = handed.pop(REST, None)
        return handed if file is None else {**handed, **json.loads(Path(file).read_text())}
    except (OSError, ValueError, TypeError) as error:
        raise ConfigurationError(
            RunCode.BAD_STATE_BACKEND,
            f"{STATE_VARIABLE} is not as Meltano's state backend sets it: unset it ({error})",
        ) from error


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
        is_of_this_run = datetime.fromisoformat(body["failed_at"]) > since - EARLIER
        return str(body["error"]) if is_of_this_run else None
    return None
