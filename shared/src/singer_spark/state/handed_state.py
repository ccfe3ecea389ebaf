"""The location of the state, handed over by Meltano's state backend to the programs that Meltano
starts.

Meltano gives a tap a copy of the state as a file, or none. Without one, it is unclear whether there
is no state yet or none is wanted. The location itself shows that, and has the checkpoint beside it.
The backend is only asked for a state if one is wanted, so whether it sets the variable shows that,
too.

Every plugin gets Meltano's environment. So the variable only names the pipeline; settings that may
contain secrets are in a file that only this user can read, and that is removed with Meltano's
process.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Any

from singer_spark.core.scratch import scratch_folder
from singer_spark.error_codes import RunCode
from singer_spark.errors import ConfigurationError

STATE_VARIABLE = "SPARK_LAKE_STATE"
PLAIN = ("bucket", "pipeline")
REST = "rest"


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
