"""Merges: which files may hold a row of the run's keys, which row of a key stays, and the files written anew.

Start with `survey`, then `contest`, then `spark_merge`.
"""
