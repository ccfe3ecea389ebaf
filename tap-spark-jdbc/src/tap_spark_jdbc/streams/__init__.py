"""The streams of a run as the SDK sees them: slices become RECORD lines or BATCH messages, each with its STATE.

It may import `reading` and what lies below. Start with `jdbc_stream`; `stream_reading` is what it sends from, and
`streams_ahead` begins streams before their turn.
"""
