"""Going on from a run that died: what a run is allowed to take over from the checkpoint, and under which settings."""

from __future__ import annotations

import hashlib
import json
import logging
from typing import TYPE_CHECKING, Any

from singer_spark.errors import StateError
from target_spark_lake.commit.staged_stream import StagedStream, staged_streams

if TYPE_CHECKING:
    from collections.abc import Mapping

    from target_spark_lake.commit.pipeline_run import PipelineRun
    from target_spark_lake.settings import TargetSettings

JSON = dict[str, Any]
logger = logging.getLogger("target-spark-lake")

SETTINGS = "settings"
STREAMS = "streams"
# With another value of one of these the rows that are staged would not be the ones that the next run stages.
_SETTINGS_OF_ROWS = (
    "add_record_metadata",
    "compression",
    "load_method",
    "on_invalid_record",
    "schema_evolution",
    "validate_records",
)
_OPTIONS_OF_ROWS = ("columns", "key_properties", "load_method", "partition_by")


def settings_of_rows(settings: TargetSettings, mapping: Mapping[str, Any]) -> dict[str, str]:
    """A fingerprint of each setting that changes rows on their way to staging; the values may be secret.

    Args:
        settings: The target's.
        mapping: singer-sdk's settings of stream maps and flattening, as far as they are given.
    """
    values = {name: getattr(settings, name) for name in _SETTINGS_OF_ROWS} | dict(mapping)
    options = {
        name: {option: each[option] for option in _OPTIONS_OF_ROWS if each.get(option) is not None}
        for name, each in settings.stream_options.items()
    }
    values["stream_options"] = {name: each for name, each in options.items() if each}
    return {name: _fingerprint(value) for name, value in values.items()}


def adopt(run: PipelineRun, value: JSON, resume: JSON | None, settings: Mapping[str, str]) -> dict[str, StagedStream]:
    """Takes over what the run that died had staged.

    Args:
        run: The open run.
        value: The first STATE's value.
        resume: What stands beside it.
        settings: What `settings_of_rows` gives for this run.

    Raises:
        StateError: the tap goes on from something else, or the settings are other ones; then the next run starts anew.
        StorageError: the storage failed.
    """
    checkpoint = run.resume_from(value, resume)
    before = checkpoint.target.get(SETTINGS) or {}
    changed = sorted(name for name in {*before, *settings} if before.get(name) != settings.get(name))
    if changed:
        run.checkpoint.discard()
        raise StateError(
            f"the target's {', '.join(changed)} changed since run {checkpoint.run_id} died, so the rows that it staged "
            "can't be used; nothing was changed, run tap and target again, they start anew"
        )
    streams = staged_streams(checkpoint)
    rows = sum(stream.rows for stream in streams.values())
    logger.info(
        "Going on from run %s, which died: %s records in %s stream(s) are staged already.",
        checkpoint.run_id,
        f"{rows:,}",
        len(streams),
    )
    return streams


def _fingerprint(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:16]
