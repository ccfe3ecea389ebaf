"""Fixtures of these tests."""

from target.fixtures import without_jvm

__all__ = ["without_jvm"]
