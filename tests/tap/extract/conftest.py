"""Fixtures of these tests."""

from tap.extract.resumed_pipes import postgres_pipe, sqlite_pipe

__all__ = ["postgres_pipe", "sqlite_pipe"]
