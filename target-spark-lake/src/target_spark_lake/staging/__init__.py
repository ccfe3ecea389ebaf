"""Lines and batch files become Parquet files that no reader sees yet: by Arrow where they are plain, else by Spark.

It may import `commit` and what lies below. Start with `stager`.
"""
