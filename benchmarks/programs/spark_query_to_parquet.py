"""Plain Spark: one JDBC query written as zstd Parquet, as a script for an increment would do it."""

import sys

from pyspark.sql import SparkSession

url, user, password, driver, _, jar, query, output = sys.argv[1:]
spark = SparkSession.builder.master("local[*]").config("spark.jars", jar).getOrCreate()
properties = {"user": user, "password": password, "driver": driver, "fetchsize": "10000"}
frame = spark.read.jdbc(url, query, properties=properties)
frame.write.option("compression", "zstd").mode("overwrite").parquet(output)
spark.stop()
