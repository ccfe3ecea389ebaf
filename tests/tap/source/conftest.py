"""Fixtures of these tests."""

from tap.source.mariadb_pipes import database, pipe

__all__ = ["database", "pipe"]
