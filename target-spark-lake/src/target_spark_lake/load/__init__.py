"""One run of the target: messages in, a batch of each stream filled and staged, one commit at the end.

It may import `maintenance`, `formats` and what lies below. Start with `load_run`; `sink` is what a run holds of
one stream, `settling` what a SCHEMA makes of it.
"""
