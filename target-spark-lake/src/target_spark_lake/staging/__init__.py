"""Lines and batch files become Parquet files that no reader sees yet, in this process or in Spark's tasks.

It may import `commit` and what lies below. Start with `stager` and `line_rows`.
"""
