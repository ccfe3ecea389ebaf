"""Reading slices without the JVM: as Arrow batches, written as RECORD lines or batch files.

It may import `reading` and what lies below. Start with `columnar_source`, which reads a stream, and `columnar_query`,
which reads one slice; `record_lines` and `columnar_writer` write its rows.
"""
