"""`spark-lake verify` in the process of a test, over what a `RoundTrip` loaded."""

from __future__ import annotations

import warnings
from typing import Any

from end_to_end.round_trip import PIPELINE, RoundTrip
from singer_spark.state.store import BucketState
from singer_spark.storage.storage import Storage
from target_spark_lake.commit.pipeline_run import open_run
from target_spark_lake.config.settings import TargetSettings
from target_spark_lake.layout import Layout
from target_spark_lake.verify.verification import TapSide, repair, verify
from target_spark_lake.verify.verify_report import VerifyReport


def report(trip: RoundTrip, *, stream: str | None = None, **target: Any) -> VerifyReport:
    """What verify finds."""
    config = {"bucket": str(trip.folder), "pipeline": PIPELINE, **target}
    settings, storage, layout = TargetSettings.from_config(config), Storage(str(trip.folder)), Layout(PIPELINE)
    store = BucketState(storage, layout.state)
    with warnings.catch_warnings():
        # PySpark leaves the socket of a `collect` to the garbage collector.
        warnings.simplefilter("ignore", ResourceWarning)
        tap = TapSide(trip.config)
        return verify(storage, layout, store, settings, config, tap, stream=stream)


def verified(trip: RoundTrip, stream: str, **options: Any) -> dict[str, Any]:
    """What verify finds of one stream, as `--json` has it."""
    found: dict[str, Any] = report(trip, stream=stream, **options).to_json()["streams"][stream]
    return found


def differences(found: dict[str, Any]) -> tuple[list[Any], list[Any], list[Any]]:
    """The keys that are missing, extra and different."""
    return found["missing"], found["extra"], found["different"]


AGREE: tuple[list[Any], list[Any], list[Any]] = ([], [], [])


def repaired(trip: RoundTrip, **target: Any) -> VerifyReport:
    """What verify finds, and brings from the source into the lake."""
    config = {"bucket": str(trip.folder), "pipeline": PIPELINE, **target}
    settings, storage, layout = TargetSettings.from_config(config), Storage(str(trip.folder)), Layout(PIPELINE)
    run = open_run(storage, layout, store=BucketState(storage, layout.state), command="repair")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        return repair(run, settings, config, TapSide(trip.config))
