"""dlt's `sql_table` into its `filesystem` destination as zstd Parquet, with the backend that is
asked for.
"""

import os
import sys
from pathlib import Path

dsn, schema, table, backend, output = sys.argv[1:]
os.environ |= {"RUNTIME__DLTHUB_TELEMETRY": "false", "DATA_WRITER__COMPRESSION": "zstd"}

import dlt  # noqa: E402  (reads the environment)
from dlt.sources.sql_database import sql_table  # noqa: E402

source = sql_table(
    credentials=dsn.replace("postgresql://", "postgresql+psycopg2://").replace(
        "mysql://", "mysql+pymysql://"
    ),
    schema=schema,
    table=table,
    backend=backend,
    chunk_size=100_000,
    backend_kwargs={"conn": dsn} if backend == "connectorx" else None,
)
pipeline = dlt.pipeline(
    "bench",
    destination=dlt.destinations.filesystem(bucket_url=Path(output).as_uri()),
    dataset_name="raw",
    pipelines_dir=str(Path(output).with_name("dlt")),
)
print(pipeline.run(source, loader_file_format="parquet"))
