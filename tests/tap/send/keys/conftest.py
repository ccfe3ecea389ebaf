"""Fixtures of these tests."""

from tap.send.keys.keyed_pipes import source, sqlite_pipe

__all__ = ["source", "sqlite_pipe"]
