"""One run of the target: messages in, batches filled and staged per stream, one commit at the end.

It may import `maintenance`, `formats` and the rooms below. Start with `load_run`; `sink` holds the
run's data for one stream, `stream_resolution` checks a SCHEMA against the table.
"""
