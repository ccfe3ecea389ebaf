"""Where the state lies, as Meltano's state backend hands it to the programs that Meltano starts.

Meltano gives a tap a copy of the state as a file, or none: it does not say whether there is no state yet, or none is
wanted. The place itself tells, and a checkpoint lies beside it. The backend is asked for a state only where one is
wanted, so what it puts into the environment says that too.

Meltano gives its environment to every plugin. So it names the pipeline alone; what may hold secrets lies in a file that
this user alone can read, and that goes with Meltano's process.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from singer_spark.errors import ConfigurationError
from singer_spark.process.scratch import scratch_folder

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping

VARIABLE = "SPARK_LAKE_STATE"
PLAIN = ("bucket", "pipeline")
REST = "rest"


def hand_over(place: Mapping[str, Any], environ: MutableMapping[str, str]) -> None:
    """Puts the place into the environment of the programs that are started from here on.

    Args:
        place: Of the target's config, what says where the state is: bucket, pipeline, state_backend, storage_options.
        environ: This process's environment.

    Raises:
        ConfigurationError: there is no folder for temporary files.
    """
    file = scratch_folder() / "handed-state.json"
    file.write_text(json.dumps({name: value for name, value in place.items() if name not in PLAIN}))
    told = {**{name: place[name] for name in PLAIN}, REST: str(file)}
    # Meltano takes a dollar sign in a variable for the name of another one.
    environ[VARIABLE] = json.dumps(told).replace("$", "\\u0024")


def handed_over(environ: Mapping[str, str]) -> dict[str, Any] | None:
    """The place that was handed over; None where none was.

    Raises:
        ConfigurationError: it is not as it was handed over.
    """
    text = environ.get(VARIABLE)
    if not text:
        return None
    try:
        told = dict(json.loads(text))
        file = told.pop(REST, None)
        return told if file is None else {**told, **json.loads(Path(file).read_text())}
    except (OSError, ValueError, TypeError) as error:
        raise ConfigurationError(f"{VARIABLE} is not what Meltano's state backend says: unset it ({error})") from error
