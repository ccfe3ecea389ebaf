"""Spark with Iceberg's own runtime: does the statements of standard input, a JSON list, and prints
the rows of each.

    python -m target.spark_iceberg FOLDER

FOLDER is a lake whose catalog is the file in it. The jars need a network the first time.
"""

from __future__ import annotations

import json
import shlex
import sys

from pyspark.sql import SparkSession

from servers.clusters.standalone import short_lived
from tap_spark_jdbc.source.drivers import JarCache

PACKAGES = (
    "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0",
    "org.xerial:sqlite-jdbc:3.50.3.0",
)


def session(folder: str) -> SparkSession:
    jars = JarCache("iceberg", "Iceberg's runtime", "fetch it where there is a network").jars(
        PACKAGES
    )
    catalog = "spark.sql.catalog.lake"
    return (
        SparkSession.builder.master("local[1]")
        .config("spark.jars", ",".join(jars))
        .config("spark.ui.enabled", "false")
        .config("spark.driver.extraJavaOptions", shlex.join(short_lived()))
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.session.timeZone", "UTC")
        .config(catalog, "org.apache.iceberg.spark.SparkCatalog")
        .config(f"{catalog}.type", "jdbc")
        .config(f"{catalog}.uri", f"jdbc:sqlite:{folder}/.dataspoc/catalog.db")
        .config(f"{catalog}.warehouse", f"file://{folder}")
        .config(f"{catalog}.jdbc.schema-version", "V1")
        .config(
            "spark.sql.extensions",
            "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        )
        .getOrCreate()
    )


def main() -> None:
    spark = session(sys.argv[1])
    found = [spark.sql(each).collect() for each in json.load(sys.stdin)]
    print(json.dumps([[row.asDict(recursive=True) for row in rows] for rows in found], default=str))


if __name__ == "__main__":
    main()
