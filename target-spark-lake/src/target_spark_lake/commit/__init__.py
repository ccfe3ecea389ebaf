"""The commit: lock, journal, publishing, recovery.

It is plain Python, and can be repeated from the journal entry on.

It may import `table_log`, `intake` and the layers below. Start with `pipeline_run`, then `journal`
and `publish`.
"""
