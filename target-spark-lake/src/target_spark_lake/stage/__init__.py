"""Staged Parquet files of a run."""
