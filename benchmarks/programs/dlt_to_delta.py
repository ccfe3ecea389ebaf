"""dlt's `sql_table` into a Delta table of its `filesystem` destination: new rows by `updated_at`,
merged by `id`.
"""

import os
import sys
from pathlib import Path

url, schema, table, output = sys.argv[1:]
os.environ["RUNTIME__DLTHUB_TELEMETRY"] = "false"

import dlt  # noqa: E402  (reads the environment)
from dlt.sources.sql_database import sql_table  # noqa: E402

source = sql_table(
    credentials=url,
    schema=schema or None,
    table=table,
    backend="pyarrow",
    incremental=dlt.sources.incremental("updated_at"),
    primary_key="id",
    write_disposition="merge",
)
source.apply_hints(table_format="delta")
pipeline = dlt.pipeline(
    "everyday",
    destination=dlt.destinations.filesystem(bucket_url=Path(output).as_uri()),
    dataset_name="raw",
    pipelines_dir=str(Path(output).with_name("dlt")),
)
print(pipeline.run(source))
