"""Fixtures of these tests."""

from tap.supply.arrow_runs import noted_writers, place, shop, tasks

__all__ = ["noted_writers", "place", "shop", "tasks"]
