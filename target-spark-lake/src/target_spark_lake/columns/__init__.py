"""Columns: their types, evolution and partitions, and conversion of rows to them by Arrow or Spark.

It imports nothing else of the target. Start with `evolution`; types are those of
`singer_spark.core.lake_type`.
"""
