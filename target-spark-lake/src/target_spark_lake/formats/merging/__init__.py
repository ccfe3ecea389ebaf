"""Merges: finds files that may hold rows of the run's keys, decides between the rows of a key, and
rewrites files.

Start with `survey`; `conflicts` decides, by `rules`; `arrow_merge` and `spark_merge` are the two
engines that run it.
"""
