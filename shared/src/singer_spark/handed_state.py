"""Where the state lies, as Meltano's state backend hands it to the programs that Meltano starts.

Meltano gives a tap a copy of the state as a file, or none: it does not say whether there is no state yet, or none is
wanted. The place itself tells, and a checkpoint lies beside it. The backend is asked for a state only where one is
wanted, so what it puts into the environment says that too.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from singer_spark.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping

VARIABLE = "SPARK_LAKE_STATE"


def hand_over(place: Mapping[str, Any], environ: MutableMapping[str, str]) -> None:
    """Puts the place into the environment of the programs that are started from here on.

    Args:
        place: Of the target's config, what says where the state is: bucket, pipeline, state_backend, storage_options.
        environ: This process's environment.
    """
    # Meltano takes a dollar sign in a variable for the name of another one.
    environ[VARIABLE] = json.dumps(place).replace("$", "\\u0024")


def handed_over(environ: Mapping[str, str]) -> dict[str, Any] | None:
    """The place that was handed over; None where none was.

    Raises:
        ConfigurationError: it is not as it was handed over.
    """
    text = environ.get(VARIABLE)
    if not text:
        return None
    try:
        return dict(json.loads(text))
    except (ValueError, TypeError) as error:
        raise ConfigurationError(f"{VARIABLE} is not what Meltano's state backend says: unset it ({error})") from error
