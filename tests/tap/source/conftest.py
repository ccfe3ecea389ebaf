"""Fixtures of these tests."""

from tap.source.mariadb_pipes import database, pipe, server

__all__ = ["database", "pipe", "server"]
