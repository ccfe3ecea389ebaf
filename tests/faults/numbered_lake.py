"""A lake in a folder whose runs are numbered by its state, and the target's load without its
command around it.
"""

from __future__ import annotations

import shutil
from copy import copy
from pathlib import Path
from typing import Any, Self

from faults.faulty import Died
from faults.small_lake import NO_BEATS
from singer_spark.core.identity import Process
from singer_spark.errors import SingerSparkError
from singer_spark.program.progress import Progress
from singer_spark.store.storage import Storage
from target.loading import Lake, to_bytes
from target_spark_lake.commit.pipeline_run import PipelineRun, open_run
from target_spark_lake.config.settings import TargetSettings
from target_spark_lake.intake.singer_lines import LineRouter, RecordLines
from target_spark_lake.layout import Layout
from target_spark_lake.load.load_run import LoadRun
from target_spark_lake.table.changes import Commit

LAYOUT = Layout("test")


class NumberedLake:
    """What run n commits, a lake's own class says."""

    layout = LAYOUT

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def copied(self, name: object) -> Self:
        """The lake once more, beside itself, or at a path of its own."""
        lake = copy(self)
        lake.folder = Path(shutil.copytree(self.folder, self.folder.parent / f"{name}"))
        return lake

    def storage(self, wrap: Any = None) -> Storage:
        """The bucket, with a proxy around the operations on files where one is given."""
        plain = Storage(str(self.folder))
        return plain if wrap is None else Storage(str(self.folder), files=wrap(plain.files))

    def sync(self, storage: Storage | None = None, process: Process | None = None) -> int:
        """A run; gives its number."""
        run = open_run(
            storage or self.storage(), self.layout, lock_ttl_seconds=NO_BEATS, process=process
        )
        try:
            number = 1 + (run.committed_state() or {"run": 0})["run"]
            run.commit(self.commit_of(run, number))
        except Died:
            raise
        except BaseException as error:
            run.fail(error)
            raise
        return int(number)

    def commit_of(self, run: PipelineRun, number: int) -> Commit:
        raise NotImplementedError


def load(
    lake: Lake, run: PipelineRun, session: object, *messages: dict[str, Any], **settings: Any
) -> None:
    """The target without its command: a death raises through it as a kill would end it."""
    config = TargetSettings.from_config(
        {"bucket": str(lake.folder), "pipeline": "test", **settings}
    )
    progress = Progress("loaded")
    loading = LoadRun(config, run, lambda: session, progress=progress)
    try:
        for item in LineRouter().feed(to_bytes(*messages)):
            if isinstance(item, RecordLines):
                loading.records(item)
            else:
                loading.schema(item.value)
        loading.finish()
    except SingerSparkError as error:
        loading.fail(error)
        raise
    finally:
        progress.stop()
