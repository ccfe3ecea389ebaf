"""Files and tables made better without a change of their rows: compaction, and Parquet tables that become Delta.

It may import `staging` and what lies below. Start with `compaction`.
"""
