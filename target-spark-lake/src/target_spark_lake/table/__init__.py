"""A table of the lake: its record, columns, their evolution, partitions, files and index.

It may import `layout`. Start with `table_record` for what a table is, `changes` for what a commit
does to it, `evolution` for its columns; types are those of `singer_spark.core.lake_type`.
"""
