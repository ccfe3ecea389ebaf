"""The source's side of `spark-lake verify`: which rows the lake must have by now.

The target finds it by name and knows only `singer_spark.compared_source`. It may import every room of the tap. Start
with `source_view`.
"""
