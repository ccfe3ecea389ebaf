"""Slices become rows: Spark reads them over JDBC, as lines in a spool or as batch files.

It may import `snapshot` and what lies below. Start with `spark_reader` (lines) and `batch_writer` (files);
`slices_ahead` keeps several slices at work, and `edges` knows which rows lie at the edges of a run.
"""
