"""What a table format makes of a run: staged files become changes of a table that can be committed.

It may import `staging` and what lies below. Start with `stream_load`; `merging` finds the rows that a merge changes.
"""
