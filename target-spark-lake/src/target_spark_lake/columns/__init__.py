"""Columns: their types, how they evolve, their partitions, and rows brought to them by Arrow or by Spark.

It imports nothing else of the target. Start with `lake_type`, then `evolution`.
"""
