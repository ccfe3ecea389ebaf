"""Spark with Delta's own runtime: does the statements of standard input, a JSON list, and prints
the rows of each.

    python -m target.spark_delta

The jars need a network the first time.
"""

from __future__ import annotations

import json
import shlex
import sys

from pyspark.sql import SparkSession

from servers.clusters.standalone import short_lived
from tap_spark_jdbc.source.drivers import JarCache

PACKAGES = ("io.delta:delta-spark_4.1_2.13:4.4.0", "io.delta:delta-storage:4.4.0")


def session() -> SparkSession:
    jars = JarCache("delta", "Delta's runtime", "fetch it where there is a network").jars(PACKAGES)
    return (
        SparkSession.builder.master("local[1]")
        .config("spark.jars", ",".join(jars))
        .config("spark.ui.enabled", "false")
        .config("spark.driver.extraJavaOptions", shlex.join(short_lived()))
        .config("spark.sql.shuffle.partitions", "1")
        # What Delta's log leaves out is seen, and not what Parquet's own statistics do.
        .config("spark.sql.parquet.filterPushdown", "false")
        # For a handful of rows a compiled plan costs more than it saves, as a plan that is made
        # again on the way.
        .config("spark.sql.adaptive.enabled", "false")
        .config("spark.sql.codegen.factoryMode", "NO_CODEGEN")
        .config("spark.databricks.delta.snapshotPartitions", "1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config(
            "spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog"
        )
        .getOrCreate()
    )


def main() -> None:
    spark = session()
    found = [spark.sql(each).collect() for each in json.load(sys.stdin)]
    print(json.dumps([[row.asDict(recursive=True) for row in rows] for rows in found], default=str))


if __name__ == "__main__":
    main()
