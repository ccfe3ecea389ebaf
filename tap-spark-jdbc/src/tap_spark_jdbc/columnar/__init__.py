"""Reading slices in this process, as Arrow batches, written as RECORD lines or batch files.

It may import `reading` and what lies below. `columnar_source` reads a stream by the database's own driver, without
the JVM, and `columnar_query` one slice; `jdbc_reader` reads over JDBC. `record_lines`, `columnar_writer` and
`jdbc_writer` write the rows.
"""
