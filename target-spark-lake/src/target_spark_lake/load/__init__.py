"""One run of the target: it takes messages, fills and stages batches, and commits once.

It may import `formats` and the layers below. Start with `load_run`; `sink` holds the run's data for
one stream, `stream_resolution` checks a SCHEMA against the table.
"""
