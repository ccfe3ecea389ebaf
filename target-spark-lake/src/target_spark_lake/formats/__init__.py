"""Table formats: turns the staged files of a run into table changes for the commit.

It may import `staging` and the rooms below. Start with `stream_load`; `merging` finds the rows that
a merge changes.
"""
