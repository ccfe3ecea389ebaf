"""Fixtures of these tests."""

from tap.columnar.arrow_runs import place, shop, tasks

__all__ = ["place", "shop", "tasks"]
