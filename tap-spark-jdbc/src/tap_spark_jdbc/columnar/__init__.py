"""Rows as Arrow batches: the readers of slices, and the sinks that make RECORD lines or batch files
of them.

It may import `reading` and what lies below. `columnar_source` reads a stream by the database's own
driver, without the JVM, and `columnar_query` one slice. `jdbc_reader` reads over JDBC in the JVM,
`spark_reader` in Spark's tasks; both take rows as `jdbc_rows` has them. `record_lines` and
`batch_files` are the sinks.
"""
