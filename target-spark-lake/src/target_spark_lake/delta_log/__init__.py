"""The log of a Delta table, which follows the journal: each commit is fixed in the plan and looked
up by its run.

It may import `table` and the layers below. Start with `snapshot` to read, `log_entry` and
`log_publish` to write.
"""
