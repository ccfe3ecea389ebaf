"""Tables as plain values: records, indexes and statistics of their files, and the changes of a
commit.

It may import `columns` and the settings. Start with `changes`, then `table_record`.
"""
