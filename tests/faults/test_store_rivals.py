"""Two runs at once, fifty times, on each store: one of them takes the pipeline, the other is told so."""

from __future__ import annotations

import threading

from faults.small_lake import LAYOUT, NO_BEATS, SmallLake
from servers.azure import AzureStore
from servers.google import GoogleStore
from servers.s3 import S3
from singer_spark.errors import SingerSparkError
from target_spark_lake.commit.pipeline_run import PipelineRun, open_run

ROUNDS = 50


def test_two_runs_at_once_have_one_winner_each_time(store: S3 | GoogleStore | AzureStore) -> None:
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
