"""Fixtures of these tests."""

from shared.store.watched_store import bucket, large, opened, proxy, storage

__all__ = ["bucket", "large", "opened", "proxy", "storage"]
