"""Checks the start of a tap: its first STATE against the saved one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from singer_spark.errors import ProtocolError, StateError
from singer_spark.state.store import Checkpoint, same_state
from target_spark_lake.error_codes import LakeCode

SAVED, FIRST, FULL, RESUME = "saved", "first", "full", "resume"


def check_start(
    start: str | None,
    value: Mapping[str, Any],
    saved: Mapping[str, Any] | None,
    pipeline: str,
    last: str | None,
) -> None:
    """Refuse a run that started from another state than the committed one.

    `start` is None for other taps.

    Raises:
        ProtocolError: the start is unknown.
        StateError: another run has changed the state meanwhile.
    """
    if start is None or start == FULL:
        return
    if start not in (SAVED, FIRST):
        raise ProtocolError(
            LakeCode.INPUT_OUT_OF_ORDER,
            f"the tap says it starts from {start!r}, which this target does not know",
        )
    if same_state(saved, value if start == SAVED else None):
        return
    read = "the state that it read" if start == SAVED else "no state"
    run = f" (last committed run: {last})" if saved is not None and last else ""
    raise StateError(
        LakeCode.STATE_MOVED_ON,
        f"pipeline {pipeline}: the tap started from {read}, but the saved one is different{run}; "
        "nothing was changed, run tap and target again",
    )


def check_resumed(
    value: Mapping[str, Any],
    resume: Mapping[str, Any] | None,
    checkpoint: Checkpoint | None,
    pipeline: str,
) -> Checkpoint:
    """Return the checkpoint; refuse a run that resumes from anything else.

    Raises:
        StateError: it resumes from another checkpoint, or there is none any more.
    """
    if checkpoint is None:
        raise StateError(
            LakeCode.RESUMPTION_LOST,
            f"pipeline {pipeline}: the tap continues a run that died, but what that run staged is "
            "gone; nothing was changed, run tap and target again, they start over",
        )
    if not (same_state(checkpoint.state, value) and same_state(checkpoint.resume, resume)):
        raise StateError(
            LakeCode.RESUMPTION_LOST,
            f"pipeline {pipeline}: the tap continues from an older place than run "
            f"{checkpoint.run_id} had staged; nothing was changed, run tap and target again",
        )
    return checkpoint
