"""Fixtures of these tests."""

from target.fixtures import checkpoints_at_once, without_jvm

__all__ = ["checkpoints_at_once", "without_jvm"]
