"""The pipeline in /srv/shop as Dagster assets, one for each stream.

The folder holds tap.json and target.json.
"""

import json
import subprocess
from collections.abc import Iterator

import dagster as dg

FOLDER = "/srv/shop"
SPARK_LAKE = f"{FOLDER}/.venv/bin/spark-lake"
STREAMS = ("customers", "orders")


@dg.multi_asset(
    specs=[dg.AssetSpec(["shop", stream], kinds={"parquet"}) for stream in STREAMS],
    # A failed run has published nothing, so a retry is always safe.
    retry_policy=dg.RetryPolicy(max_retries=3, delay=300),
    pool="shop",
)
def shop(
    context: dg.AssetExecutionContext, subprocesses: dg.PipesSubprocessClient
) -> Iterator[dg.MaterializeResult]:
    """Loads what is new, and reports the rows, files and bytes of each stream."""
    subprocesses.run(context=context, command=[SPARK_LAKE, "run"])
    runs = json.loads(subprocess.check_output([SPARK_LAKE, "runs", "--json"], cwd=FOLDER))
    latest = next(run for run in runs if run["kind"] == "sync")
    for stream in STREAMS:
        metadata = {"run_id": latest["run_id"], **latest["streams"][stream]}
        yield dg.MaterializeResult(asset_key=["shop", stream], metadata=metadata)


defs = dg.Definitions(
    assets=[shop],
    schedules=[dg.ScheduleDefinition(name="shop_daily", target=[shop], cron_schedule="0 5 * * *")],
    resources={"subprocesses": dg.PipesSubprocessClient(cwd=FOLDER)},
)
