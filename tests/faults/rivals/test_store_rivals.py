"""Two runs on each store: of twenty pairs at once, one takes the pipeline each time; runs whose
clocks differ commit once.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from faults.faulty import Interrupted
from faults.rivals.test_rivals import ELSEWHERE
from faults.small_lake import LAYOUT, NO_BEATS, STEP, SmallLake
from servers.azure import AzureStore
from servers.google import GoogleStore
from servers.s3 import S3
from singer_spark.errors import LockedError, SingerSparkError
from singer_spark.state.run_log import encode
from target_spark_lake.commit.lock import entry_path, newest_entry
from target_spark_lake.commit.pipeline_run import PipelineRun, open_run

Store = S3 | GoogleStore | AzureStore
ROUNDS = 20


def test_two_runs_at_once_have_one_winner_each_time(store: Store) -> None:
    lake = SmallLake(store.new_bucket(), store.storage_options)
    for _ in range(ROUNDS):
        barrier = threading.Barrier(2)
        runs: list[PipelineRun] = []
        refused: list[SingerSparkError] = []

        def start(
            barrier: threading.Barrier = barrier,
            runs: list[PipelineRun] = runs,
            refused: list[SingerSparkError] = refused,
        ) -> None:
            barrier.wait()
            try:
                runs.append(open_run(lake.storage(), LAYOUT, lock_ttl_seconds=NO_BEATS))
            except SingerSparkError as error:
                refused.append(error)

        rivals = [threading.Thread(target=start) for _ in range(2)]
        for rival in rivals:
            rival.start()
        for rival in rivals:
            rival.join()
        assert (len(runs), len(refused)) == (1, 1)
        runs[0].fail(RuntimeError("only started"))
    lake.check_exact(lake.sync())


@pytest.mark.parametrize("ahead", [-1, 1])
def test_holder_with_wrong_clock_cannot_commit(store: Store, ahead: int) -> None:
    """Its signs of life are dated by its own clock: it is the journal that decides, not a clock."""
    lake = SmallLake(store.new_bucket(), store.storage_options)
    lake.sync()

    def meanwhile() -> None:
        entry = newest_entry(lake.storage(), LAYOUT)
        assert entry is not None
        dated = replace(entry, beat=datetime.now(UTC) + ahead * timedelta(hours=1), ttl_seconds=60)
        lake.storage().replace(entry_path(LAYOUT, entry.generation), encode(dated.to_body()))
        lake.sync()

    def commits(name: str, args: tuple[object, ...]) -> bool:
        return name == "create" and str(args[0]).startswith(LAYOUT.runs)

    with pytest.raises(LockedError, match="LAKE-061"):
        lake.sync(
            lake.faulty_files(lambda files: Interrupted(files, commits, meanwhile)), ELSEWHERE
        )
    lake.check_exact(2 * STEP)
