"""ConnectorX alone.

The table into Arrow by two connections, and that into one zstd Parquet file.
"""

import sys

import connectorx
import pyarrow.parquet as pq

dsn, schema, table, output = sys.argv[1:]
read = connectorx.read_sql(
    dsn, f"SELECT * FROM {schema}.{table}", return_type="arrow", partition_on="id", partition_num=2
)
pq.write_table(read, output, compression="zstd")
