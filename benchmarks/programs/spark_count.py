"""A bare Spark session that counts one JDBC table and ends."""

import sys

from pyspark.sql import SparkSession

url, user, password, driver, table, jar = sys.argv[1:]
spark = SparkSession.builder.master("local[*]").config("spark.jars", jar).getOrCreate()
properties = {"user": user, "password": password, "driver": driver, "fetchsize": "10000"}
print(spark.read.jdbc(url, table, properties=properties).count())
spark.stop()
