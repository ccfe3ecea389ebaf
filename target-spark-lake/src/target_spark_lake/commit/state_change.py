"""Replaces the saved state by a journalled run of its own, which loads nothing."""

from __future__ import annotations

import copy
import logging
from typing import TYPE_CHECKING, Any

from singer_spark.core.signals import too_late_to_stop
from singer_spark.errors import SingerSparkError
from singer_spark.state.store import same_state
from target_spark_lake.table.changes import Commit

if TYPE_CHECKING:
    from collections.abc import Callable

    from target_spark_lake.commit.pipeline_run import PipelineRun

JSON = dict[str, Any]
logger = logging.getLogger("spark-lake")


def change_state(run: PipelineRun, edited: Callable[[JSON | None], JSON | None]) -> bool:
    """Save the result of `edited` applied to the saved state, and end the run.

    False, without a trace, if unchanged.

    Raises:
        SingerSparkError: `edited` refused; or the storage failed, and the text says whether the run
            is committed.
    """
    with run.failing(SingerSparkError):  # refused: this counts as a run that never happened
        before = run.committed_state()
        after = edited(copy.deepcopy(before))
    if after is None or same_state(before, after):
        run.leave()
        return False
    with run.failing():
        left = run.recovery.checkpoint
        if left is not None:
            logger.warning(
                "What run %s, which died, had staged is dropped: it began from another state.",
                left.run_id,
            )
            run.checkpoint.discard()
        too_late_to_stop()
        run.commit(Commit(state=after))
    return True
