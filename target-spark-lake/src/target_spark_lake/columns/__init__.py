"""Columns: their types, evolution and partitions, and conversion of rows to them by Arrow or Spark.

It imports nothing else of the target. Start with `lake_type`, then `evolution`.
"""
