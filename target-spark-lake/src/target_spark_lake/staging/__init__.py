"""Staging: turns lines and batch files into Parquet files not yet visible to readers, locally or in
Spark tasks.

It may import `commit` and the rooms below. Start with `stager` and `line_rows`.
"""
