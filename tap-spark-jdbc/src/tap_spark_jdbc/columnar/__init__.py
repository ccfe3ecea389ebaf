"""Slices become rows without the JVM: read as Arrow batches, written as RECORD lines or batch files.

It may import `reading` and what lies below. Start with `columnar_source`, which knows the stream, and `columnar_query`,
which reads one slice; `record_lines` and `columnar_writer` are where its rows go.
"""
