"""Tables with a log of their own, which follows the journal: Delta and Iceberg behind one
interface.

It may import `table` and the rooms below; `delta_log` and `iceberg_log` know nothing of each other.
Start with `table_log`, which the other rooms use.
"""
