"""Input: Singer lines, grouped by stream without parsing, and batch files, where permitted.

It may import `table` and the layers below. Start with `singer_lines` for RECORD lines,
`batch_message` for files, `stream_schema` for SCHEMA messages.
"""
