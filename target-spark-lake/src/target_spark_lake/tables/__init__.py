"""What a table is: its record, the index and statistics of its files, and the changes of a commit as plain values.

It may import `columns` and the settings. Start with `changes`, then `table_record`.
"""
