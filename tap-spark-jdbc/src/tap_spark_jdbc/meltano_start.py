"""Where a run under Meltano begins: at the state's own place, where Meltano's state backend says which that is."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from singer_spark.errors import ConfigurationError, StorageError
from singer_spark.handed_state import VARIABLE
from singer_spark.state_store import load_state, same_state
from tap_spark_jdbc.run_state import location_of

if TYPE_CHECKING:
    from collections.abc import Mapping

logger = logging.getLogger("tap-spark-jdbc")


def place_under_meltano(given: str | None, handed: Mapping[str, Any]) -> tuple[str | None, Mapping[str, Any]]:
    """The place to read the state from, and its storage options.

    Args:
        given: The file that Meltano gave; None: there was no state when it looked.
        handed: What its state backend handed over.

    Returns:
        The state's own place, so that a checkpoint beside it is found, and a first run says that it is one. A file
        that says something else stands for itself.
    """
    try:
        location, options = location_of(handed, VARIABLE)
        if given is None:
            return location, options
        copy, saved = load_state(given), load_state(location, options)
    except (ConfigurationError, StorageError) as error:
        logger.warning("the state's own place can't be read, so no dead run can be continued: %s", error)
        return given, {}
    same = copy is not None and saved is not None and same_state(copy.value, saved.value)
    return (location, options) if same else (given, {})
