"""Plain Spark: `spark.read.jdbc` in two partitions of the primary key, written as zstd Parquet.

Nothing else is set except `fetchsize`, which no user can do without: at its default, the driver
loads a whole partition into memory.
"""

import sys

from pyspark.sql import SparkSession

url, user, password, driver, table, jar, rows, output = sys.argv[1:]
spark = SparkSession.builder.master("local[*]").config("spark.jars", jar).getOrCreate()
properties = {"user": user, "password": password, "driver": driver, "fetchsize": "10000"}
frame = spark.read.jdbc(
    url,
    table,
    column="id",
    lowerBound=1,
    upperBound=int(rows),
    numPartitions=2,
    properties=properties,
)
frame.write.option("compression", "zstd").parquet(output)
spark.stop()
