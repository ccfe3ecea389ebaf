"""Reading slices with a Spark session over JDBC, as lines in a spool or as batch files.

It may import `snapshot` and what lies below. Start with `spark_reader` (lines) and `batch_writer` (files);
`slices_ahead` reads several slices ahead, and `edges` tracks the rows at a run's bookmark and upper bound.
"""
