"""The source's side of `spark-lake verify`: the rows that the lake must have by now.

The target imports it by name and depends only on `singer_spark.compared_source`. It may import
every room of the tap. Start with `source_view`.
"""
