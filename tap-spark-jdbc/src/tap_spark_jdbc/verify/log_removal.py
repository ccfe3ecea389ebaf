"""Removal of the slot and publication of a log-based pipeline (`spark-lake log drop`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from singer_spark.core.lean_imports import import_singer_sdk


def drop_log(
    config: Mapping[str, Any],
    state: Mapping[str, Any],
    pipeline: str,
    *,
    from_environment: bool = False,
) -> list[str]:
    """Remove the slot and the publication of a tap with this config, and return their names; starts
    the JVM.
    """
    import_singer_sdk()
    from tap_spark_jdbc.extract.run_state import OpeningState
    from tap_spark_jdbc.send.log_streams import log_of
    from tap_spark_jdbc.tap import TapSparkJdbc

    opening = OpeningState(dict(state), "saved" if state else "first", None, pipeline)
    own = {**config, "batch_config": None}
    tap = TapSparkJdbc(
        config=own, opening=opening, parse_env_config=from_environment, setup_mapper=False
    )
    try:
        return log_of(tap.database, tap.snapshots, tap.run_state, pipeline).drop()
    finally:
        tap.database.close()
