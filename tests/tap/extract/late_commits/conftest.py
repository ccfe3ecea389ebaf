"""Fixtures of these tests."""

from tap.extract.late_commits.driven_source import _impatient, source

__all__ = ["_impatient", "source"]
