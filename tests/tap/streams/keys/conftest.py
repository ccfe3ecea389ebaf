"""Fixtures of these tests."""

from tap.streams.keys.keyed_pipes import source, sqlite_pipe

__all__ = ["source", "sqlite_pipe"]
