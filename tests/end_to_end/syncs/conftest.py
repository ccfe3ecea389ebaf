"""Fixtures of these tests."""

from end_to_end.verifying import database

__all__ = ["database"]
