"""What plain Spark does with changes: Delta's MERGE, or a whole rewrite of a Parquet table.

usage: spark_merge.py delta|rewrite TABLE CHANGES OUTPUT
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

DELTA = "io.delta:delta-spark_4.1_2.13:4.4.0"
KEY = "id"


def session(*, delta: bool) -> SparkSession:
    builder = SparkSession.builder.master("local[*]").config("spark.ui.enabled", False)
    builder = builder.config("spark.driver.memory", "4g").config(
        "spark.sql.parquet.compression.codec", "zstd"
    )
    builder = builder.config("spark.sql.shuffle.partitions", 8)
    if delta:
        builder = builder.config("spark.jars.packages", DELTA)
        builder = builder.config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        builder = builder.config(
            "spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog"
        )
    return builder.getOrCreate()


def main() -> None:
    what, table, changes, output = sys.argv[1:]
    spark = session(delta=what != "rewrite")
    new = spark.read.parquet(changes)
    if what == "convert":
        spark.sql(f"CONVERT TO DELTA parquet.`{table}`")
    elif what == "delta":
        new.createOrReplaceTempView("changes")
        spark.sql(
            f"MERGE INTO delta.`{table}` AS old USING changes AS new ON old.{KEY} = new.{KEY} WHEN "
            "MATCHED AND new.clock >= old.clock THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )
    else:
        kept = spark.read.parquet(table).join(new.select(KEY), KEY, "left_anti")
        kept.unionByName(new).write.parquet(output)
    spark.stop()


if __name__ == "__main__":
    main()
