"""Fixtures of these tests."""

from target.fixtures import checkpoints_at_once, no_sign_of_life_from_the_dead, tap, without_jvm

__all__ = ["checkpoints_at_once", "no_sign_of_life_from_the_dead", "tap", "without_jvm"]
