"""Input of Singer lines and batch files: groups lines by stream without parsing, and locates
permitted files.

It may import `table` and the layers below. Start with `singer_lines` for RECORD lines,
`batch_message` for files, `stream_schema` for SCHEMA messages.
"""
