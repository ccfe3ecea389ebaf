"""Fixtures of these tests."""

from shared.storage.watched_store import bucket, large, opened, proxy, storage

__all__ = ["bucket", "large", "opened", "proxy", "storage"]
