"""Another state becomes the saved one, by a journalled run of its own that loads nothing."""

from __future__ import annotations

import copy
import logging
from typing import TYPE_CHECKING, Any

from singer_spark.errors import SingerSparkError
from singer_spark.process.signals import too_late_to_stop
from singer_spark.state.store import same_state
from target_spark_lake.tables.changes import Commit

if TYPE_CHECKING:
    from collections.abc import Callable

    from target_spark_lake.commit.pipeline_run import PipelineRun

JSON = dict[str, Any]
logger = logging.getLogger("spark-lake")


def change_state(run: PipelineRun, edited: Callable[[JSON | None], JSON | None]) -> bool:
    """Saves another state.

    Args:
        run: The open run; ended here, well or not.
        edited: Makes the new state of the saved one; None: it stays.

    Returns:
        Whether the state is another one now; False leaves no trace of the run.

    Raises:
        SingerSparkError: what `edited` refused; or the storage failed, and the text says whether the run is committed.
    """
    try:
        before = run.committed_state()
        after = edited(copy.deepcopy(before))
        if after is None or same_state(before, after):
            run.leave()
            return False
    except SingerSparkError:
        run.leave()  # refused: a run that never was
        raise
    except BaseException as error:
        run.fail(error)
        raise
    try:
        left = run.recovery.checkpoint
        if left is not None:
            logger.warning("What run %s, which died, had staged is dropped: it began from another state.", left.run_id)
            run.checkpoint.discard()
        too_late_to_stop()
        run.commit(Commit(state=after))
    except BaseException as error:
        run.fail(error)
        raise
    return True
