"""One run of the target: it takes in messages, fills and stages batches per stream, and makes one
commit at the end.

It may import `formats` and the layers below. Start with `load_run`; `sink` holds the run's data for
one stream, `stream_resolution` checks a SCHEMA against the table.
"""
