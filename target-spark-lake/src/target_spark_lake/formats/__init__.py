"""Table formats: turns the staged files of a run into table changes for the commit.

It may import `stage` and the layers below. Start with `stream_load`; `parquet_merge` finds the rows
that a merge changes.
"""
