"""Where a run under Meltano begins: at the state's own location, if Meltano's state backend has
handed that over.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from singer_spark.core.exact_json import rounded
from singer_spark.errors import ConfigurationError, StorageError
from singer_spark.state.source import StateSource, open_state_source, source_of_target
from singer_spark.state.store import same_state

logger = logging.getLogger("tap-spark-jdbc")


def source_under_meltano(given: str | None, handed: Mapping[str, Any]) -> StateSource | None:
    """Where to read the state from, given Meltano's state file, if any, and what its state backend
    handed over; None: there is nothing to read.

    The state's own location is preferred, so that a checkpoint of its lake is found and a first run
    is recognised; the file is used if it differs.
    """
    copy = None if given is None else open_state_source(given)
    try:
        source = source_of_target(handed)
        saved = source.saved
    except (ConfigurationError, StorageError) as error:
        logger.warning(
            "the state's own place can't be read, so no dead run can be continued: %s", error
        )
        return copy
    if copy is None:
        return source
    found = copy.saved
    # Meltano's copy has floats where the state may have exact decimals.
    same = (
        found is not None
        and saved is not None
        and same_state(rounded(found.value), rounded(saved.value))
    )
    return source if same else copy
