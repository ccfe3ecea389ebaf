"""Singer lines and batch files in: lines grouped by stream without being parsed, files found where they may lie.

It may import `tables` and `columns`. Start with `singer_lines` for RECORD lines, `batch_message` for files,
`stream_schema` for what a SCHEMA says.
"""
