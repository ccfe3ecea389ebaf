"""The SDK's streams: slices become RECORD lines or BATCH messages, each followed by its STATE.

It may import `reading` and what lies below. Start with `jdbc_stream`; `stream_reading` gives it the
slices to send, and `streams_ahead` begins streams before their turn.
"""
