"""Merges: finds files that may hold rows of the run's keys, decides between the rows of a key, and rewrites files.

Start with `survey`, then `contest`, then `spark_merge`.
"""
